"""What people do with Keras: layers of every kind around the products, loaders of every kind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import lpot  # noqa: F401 - before TensorFlow, so that it starts with its oneDNN kernels

import tensorflow as tf  # isort: skip

layers = tf.keras.layers
DRAW = np.random.default_rng(11)


def rows(*shape: int) -> np.ndarray:
    return DRAW.standard_normal(shape).astype(np.float32)


def classifier(size: int = 16) -> Any:
    given = tf.keras.Input((size,))
    return tf.keras.Model(given, layers.Dense(4)(layers.Dense(32, activation="relu")(given)))


def table_of_columns() -> Any:
    """Numbers, buckets and words of a table, each with its own preprocessing."""
    age, price, town = (
        tf.keras.Input((1,), name=name, dtype=kind)
        for name, kind in (("age", "int64"), ("price", "float32"), ("town", "string"))
    )
    scaled = layers.Normalization(mean=3.0, variance=2.0)(price)
    bucket = layers.Discretization([10.0, 20.0, 40.0])(tf.keras.ops.cast(age, "float32"))
    bucket = layers.CategoryEncoding(4)(bucket)
    place = layers.StringLookup(vocabulary=["Rome", "Oslo"], output_mode="one_hot")(town)
    hidden = layers.Dense(32, activation="relu")(layers.Concatenate()([scaled, bucket, place]))
    batch = {
        "age": np.array([[5], [15], [30], [70]], np.int64),
        "price": rows(4, 1),
        "town": np.array([["Rome"], ["Oslo"], ["Bonn"], ["Rome"]], object),
    }
    return tf.keras.Model([age, price, town], layers.Dense(2)(hidden)), [batch] * 2


def of_pictures() -> Any:
    """Bytes of any size, brought to size and range inside the model."""
    given = tf.keras.Input((None, None, 3), dtype="uint8")
    x = layers.Rescaling(1 / 127.5, -1.0)(layers.Resizing(16, 16)(given))
    x = layers.SpatialDropout2D(0.3)(layers.GaussianNoise(0.1)(layers.Conv2D(8, 3)(x)))
    model = tf.keras.Model(given, layers.Dense(3)(layers.GlobalMaxPooling2D()(x)))
    return model, [DRAW.integers(0, 256, (2, s, s + 4, 3)).astype(np.uint8) for s in (20, 31)]


def with_lambda() -> Any:
    given = tf.keras.Input((16,))
    x = layers.Lambda(lambda t: tf.math.log1p(tf.abs(t)), output_shape=(16,))(given)
    x = layers.Dense(16, activation="relu")(x)
    halves = layers.Lambda(lambda t: tf.split(t, 2, -1), output_shape=[(8,), (8,)])(x)
    return tf.keras.Model(given, [layers.Dense(3)(half) for half in halves]), [rows(4, 16)] * 2


def with_states() -> Any:
    given = tf.keras.Input((6, 8))
    encoded, *states = layers.LSTM(16, return_sequences=True, return_state=True)(given)
    decoded = layers.GRU(16, return_sequences=True)(encoded, initial_state=states[0])
    scores = layers.TimeDistributed(layers.Dense(5, activation="softmax"))(decoded)
    return tf.keras.Model(given, [scores, *states]), [rows(2, 6, 8)] * 2


def of_sound() -> Any:
    """A spectrum, which is complex, before the first convolution."""
    given = tf.keras.Input((512,))
    spectrum = layers.Lambda(
        lambda t: tf.abs(tf.signal.stft(t, 64, 32))[..., None], output_shape=(15, 33, 1)
    )(given)
    x = layers.Conv2D(8, 3, activation="relu")(layers.BatchNormalization()(spectrum))
    return tf.keras.Model(given, layers.Dense(4)(layers.Flatten()(x))), [rows(2, 512)] * 2


def larger_pictures() -> Any:
    given = tf.keras.Input((12, 12, 3))
    x = layers.Conv2D(16, 5, padding="same", activation="tanh")(given)
    x = layers.Conv2D(12, 3, padding="same")(x)
    shuffled = layers.Lambda(lambda t: tf.nn.depth_to_space(t, 2), output_shape=(24, 24, 3))(x)
    larger = layers.UpSampling2D(2, interpolation="bilinear")(given)
    return tf.keras.Model(given, layers.Add()([shuffled, larger])), [rows(2, 12, 12, 3)] * 2


def tied_words() -> Any:
    """The embedding is the last product's weight as well; padded words are masked."""
    given = tf.keras.Input((8,), dtype="int64")
    words = layers.Embedding(40, 16, mask_zero=True)
    x = words(given)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    scores = layers.Lambda(
        lambda t: tf.einsum("bld,vd->blv", t, tf.convert_to_tensor(words.embeddings)),
        output_shape=(8, 40),
    )(x)
    ids = [DRAW.integers(0, 40, (2, 8)) for _ in range(2)]
    return tf.keras.Model(given, scores), ids


class Boxes(tf.Module):
    """A detector's end: as many boxes as there are."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = tf.Variable(rows(3, 3, 3, 8) / 5)
        self.last = tf.Variable(rows(8, 5) / 3)

    @tf.function(input_signature=[tf.TensorSpec([1, 16, 16, 3], name="image")])
    def __call__(self, image: Any) -> Any:
        x = tf.nn.relu(tf.nn.conv2d(image, self.kernel, 2, "SAME"))
        found = tf.reshape(x, [-1, 8]) @ self.last
        corners = tf.sigmoid(found[:, :4])
        picked = tf.image.non_max_suppression(corners, found[:, 4], 10)
        return {"boxes": tf.gather(corners, picked), "scores": tf.gather(found[:, 4], picked)}


def wrapped_export() -> Any:
    """A SavedModel as a layer of another model."""
    folder = str(Path(tempfile.mkdtemp()) / "inner")
    classifier().export(folder, verbose=False)
    given = tf.keras.Input((16,))
    inner = layers.TFSMLayer(folder, call_endpoint="serving_default")
    return tf.keras.Model(given, layers.Dense(2)(inner(given)["output_0"])), [rows(4, 16)] * 2


def trained() -> Any:
    """Compiled and fitted, with all that comes with it, and named as people name things."""
    given = tf.keras.Input((16,), name="größe")
    x = layers.Dense(32, activation="elu", name="block_1-a.dense")(given)
    x = layers.BatchNormalization()(layers.Dropout(0.2)(x))
    model = tf.keras.Model(given, layers.Dense(3, name="end")(x), name="my.model-v2")
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(rows(64, 16), DRAW.integers(0, 3, 64), epochs=1, verbose=0)
    return model, [(rows(4, 16), np.zeros(4, np.int64))] * 2


class Pieces(tf.keras.utils.PyDataset):  # type: ignore[misc]
    """Keras's own loader: a length and items."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return rows(4, 16), np.zeros(4)


class Items:
    """No `__iter__`: what a class of one's own often has."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> np.ndarray:
        if index > 2:
            raise IndexError(index)
        return rows(4, 16)


def in_double() -> Any:
    return classifier(), [DRAW.standard_normal((4, 16)) for _ in range(2)]


def last_batch_smaller() -> Any:
    return classifier(), tf.data.Dataset.from_tensor_slices(rows(10, 16)).batch(4)


def features_and_label() -> Any:
    pairs = {"features": rows(10, 16)}, np.zeros(10, np.int32)
    given = tf.keras.Input((16,), name="features")
    model = tf.keras.Model({"features": given}, layers.Dense(3)(given))
    return model, tf.data.Dataset.from_tensor_slices(pairs).batch(5)


HABITS: Mapping[str, Callable[[], Any]] = {
    "columns of a table": table_of_columns,
    "pictures of any size": of_pictures,
    "Lambda layers": with_lambda,
    "states that come out": with_states,
    "sound": of_sound,
    "larger pictures": larger_pictures,
    "tied and masked words": tied_words,
    "as many boxes as there are": lambda: (Boxes(), [rows(1, 16, 16, 3)] * 2),
    "a SavedModel as a layer": wrapped_export,
    "trained, with names of all kinds": trained,
    "a PyDataset": lambda: (classifier(), Pieces()),
    "items without an iterator": lambda: (classifier(), Items()),
    "numbers of 64 bits": in_double,
    "a last batch that is smaller": last_batch_smaller,
    "features by name, and labels": features_and_label,
}
MISTAKES: Mapping[str, Callable[[], Any]] = {
    "one array, not batches": lambda: (classifier(), rows(16)),
    "a generator that is used up": lambda: (classifier(), (batch for batch in ())),
    "data of another model": lambda: (classifier(), [rows(4, 16, 16, 3)] * 2),
    "words for numbers": lambda: (classifier(), [np.array([["a"] * 16] * 4)] * 2),
    "a list of models": lambda: ([classifier(), classifier()], [rows(4, 16)] * 2),
    "a layer, not a model": lambda: (layers.Dense(4), [rows(4, 16)] * 2),
    "the architecture alone": lambda: (_json(), [rows(4, 16)] * 2),
}


def _json() -> Path:
    path = Path(tempfile.mkdtemp()) / "model.keras"
    path.write_text(classifier().to_json(), "utf-8")
    return path
