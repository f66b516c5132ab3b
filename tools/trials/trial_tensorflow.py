"""A small Keras net on the embedded digits: trained, tuned, saved and loaded again."""

import tempfile
from pathlib import Path

import keras
import numpy as np

import lpot
from lpot.demo import demo_data

data = demo_data()
images = data.calib_images.transpose(0, 2, 3, 1)
keras.utils.set_random_seed(0)
net = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.MaxPool2D(2),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
net.compile(optimizer=keras.optimizers.Adam(5e-3), loss=loss)
net.fit(images, data.calib_labels, batch_size=50, epochs=8, verbose=0)

with tempfile.TemporaryDirectory() as name:
    folder = Path(name, "int8")
    result = lpot.tune(
        net, [images[:50]], workspace=Path(name, "ws"), output=folder, goal=0.01,
        eval_loader=[(data.images.transpose(0, 2, 3, 1), data.labels)], metric="topk",
    )  # fmt: skip
    assert result.met, result
    assert lpot.load(folder) is not None
    assert np.isfinite(result.accuracy) and result.accuracy > 0.8
print(result)
