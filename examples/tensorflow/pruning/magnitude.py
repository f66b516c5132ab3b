"""A Keras CNN on CIFAR-10: LPOT's magnitude pruning from a yaml.

    python magnitude.py --data <folder with cifar10_keras_cnn/> [--config magnitude-80.yaml]

1400 images train the model after what it gave before, flipped and shifted at random, while its
weights go; 600 other images evaluate it. A sparsity that does not hold the bar gives back the
sparsest state that did. No CPU runtime runs the zeros faster.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from lpot.experimental import Pruning

TRAINED_ON = 1400
SHIFT = 3  # pixels, in any direction


class Augmented:
    """Images in random order, flipped and shifted at random, every other batch blended (mixup): the
    teacher tells what each shows, so there are no labels."""

    def __init__(self, images: np.ndarray, batch_size: int = 64) -> None:
        self.images, self.batch_size = images, batch_size
        self._draw = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.images) // self.batch_size

    def __iter__(self) -> Iterator[tuple[np.ndarray, None]]:
        order = self._draw.permutation(len(self.images))
        for number in range(len(self)):
            chosen = order[number * self.batch_size : (number + 1) * self.batch_size]
            images = np.stack([self._changed(image) for image in self.images[chosen]])
            yield self._blended(images) if number % 2 else images, None

    def _blended(self, images: np.ndarray) -> np.ndarray:
        share = self._draw.random((len(images), 1, 1, 1), np.float32)
        return share * images + (1 - share) * images[::-1]

    def _changed(self, image: np.ndarray) -> np.ndarray:
        rows, columns = self._draw.integers(0, 2 * SHIFT + 1, 2)
        size = image.shape[0]
        wide = np.pad(image, ((SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)), mode="reflect")
        moved = wide[rows : rows + size, columns : columns + size]
        return moved[:, ::-1] if self._draw.random() < 0.5 else moved


def pruned(data: Path, conf: Path, folder: Path) -> dict[str, Any]:
    tf.keras.utils.set_random_seed(0)
    place = data / "cifar10_keras_cnn"
    with np.load(place / "cifar10_test2000.npz") as found:
        images, labels = found["x"].astype(np.float32), found["y"].reshape(-1).astype(np.int64)
    prune = Pruning(str(conf))
    prune.model = tf.keras.models.load_model(place / "cnn_model.h5", compile=False)
    for layer in prune.model.layers:
        if isinstance(layer, tf.keras.layers.Dropout):
            layer.rate = 0.0  # the teacher's outputs keep the model from overfitting
    prune.train_dataloader = Augmented(images[:TRAINED_ON])
    starts = range(TRAINED_ON, len(images), 100)
    prune.eval_dataloader = [
        (images[start : start + 100], labels[start : start + 100]) for start in starts
    ]
    model = prune()
    result = prune.result
    return {
        "sparsity": result.sparsity,
        "zeros of all weights": zeros(result.sparsity),
        "FP32": result.baseline,
        "accuracy": result.accuracy,
        "holds the bar": result.met,
        "target reached": result.reached,
        "saved as": str(model.save(folder / conf.stem)),
    }


def zeros(sparsity: Any) -> float:
    """Of all kernels, pruned or not."""
    layers = sparsity.layers
    return sum(layer.zeros for layer in layers) / sum(layer.total for layer in layers)


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, default=Path("lpot_workspace/magnitude"))
    parser.add_argument(
        "--config",
        type=Path,
        nargs="+",
        default=[here / "magnitude-50.yaml", here / "magnitude-80.yaml"],
    )
    given = parser.parse_args(argv)
    results = []
    for conf in given.config:
        found = pruned(given.data, conf, given.workspace)
        print(found["sparsity"].table())
        for name, value in found.items():
            if name != "sparsity":
                print(f"{name}: {value}")
        results.append(found)
    return results


if __name__ == "__main__":
    main()
