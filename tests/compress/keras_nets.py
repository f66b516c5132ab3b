"""Small Keras nets and data for the tests of pruning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

layers = tf.keras.layers


def batch(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def stirred(model: Any) -> Any:
    """Norms and biases are not what they were made as."""
    draw = np.random.default_rng(1)
    for weight in model.weights:
        if weight.name != "kernel" and "kernel" not in weight.name:
            value = draw.uniform(0.5, 1.5, weight.shape) - ("bias" in weight.name)
            weight.assign(value.astype(np.float32))
    return model


def joined() -> Any:
    """A residual, a join, a depthwise convolution, a gate, and a flattened picture."""
    x = given = tf.keras.Input((8, 8, 3), name="pictures")
    x = layers.Conv2D(8, 3, padding="same", activation="relu", name="stem")(x)
    branch = layers.Conv2D(8, 3, padding="same", name="inner")(x)
    branch = layers.BatchNormalization(name="norm")(branch)
    x = layers.ReLU(name="ends")(layers.Add(name="add")([x, branch]))
    x = layers.Concatenate(name="join")([layers.Conv2D(6, 1, name="left")(x), x])
    x = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, name="depth")(x)
    x = layers.Conv2D(12, 1, name="wide")(layers.PReLU(shared_axes=[1, 2], name="slope")(x))
    gate = layers.Reshape((1, 1, 12))(layers.GlobalAveragePooling2D()(x))
    gate = layers.Conv2D(4, 1, activation="relu", name="squeeze")(gate)
    gate = layers.Conv2D(12, 1, activation="sigmoid", name="excite")(gate)
    x = layers.MaxPooling2D()(layers.Multiply(name="gated")([x, gate]))
    x = layers.SeparableConv2D(10, 3, padding="same", depth_multiplier=2, name="apart")(x)
    x = tf.keras.ops.relu(x * 0.5)
    x = layers.Dense(10, activation="relu", name="fc1")(layers.Flatten()(x))
    return stirred(tf.keras.Model(given, layers.Dense(3, name="fc2")(x), name="joined"))


def residual(width: int = 8, depth: int = 3) -> Any:
    x = given = tf.keras.Input((8, 8, 1), name="digits")
    x = layers.Conv2D(width, 3, padding="same", activation="relu", name="stem")(x)
    for number in range(depth):
        branch = layers.Conv2D(2 * width, 3, padding="same", use_bias=False, name=f"a{number}")(x)
        # In the few steps of a test, statistics must follow quickly.
        branch = layers.ReLU()(layers.BatchNormalization(momentum=0.8)(branch))
        branch = layers.Conv2D(width, 3, padding="same", name=f"b{number}")(branch)
        x = layers.ReLU(name=f"end{number}")(layers.Add(name=f"block{number}")([x, branch]))
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(given, layers.Dense(10, activation="softmax", name="fc")(x), name="net")


class Batches:
    """Digits, so many at a time."""

    def __init__(self, first: int, last: int, size: int = 50) -> None:
        found = load_digits()
        self.images = (found.images[first:last, ..., None] / 16).astype(np.float32)
        self.labels = found.target[first:last].astype(np.int64)
        self.size = self.batch_size = size

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(self.labels), self.size):
            yield self.images[start : start + self.size], self.labels[start : start + self.size]

    def __len__(self) -> int:
        return -(-len(self.labels) // self.size)


def trained(model: Any, batches: Batches, epochs: int = 14) -> Any:
    model.compile(tf.keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
    model.fit(batches.images, batches.labels, batches.size, epochs, verbose=0, shuffle=False)
    return model


def scorer(batches: Batches) -> Callable[[Any], float]:
    def accuracy(model: Any) -> float:
        found = np.asarray(model(batches.images)).argmax(1)
        return float((found == batches.labels).mean())

    return accuracy
