"""The TensorFlow nets of the benchmark: random weights, frozen once and kept in build/bench."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from models import CACHE, SEED

logger = logging.getLogger(__name__)

SEQUENCE, WIDTH, HEADS, LAYERS, VOCABULARY = 128, 768, 12, 6, 8000


@dataclass(frozen=True)
class TfNet:
    """One net: how to make it, what it eats, and the speed wanted for each batch size."""

    name: str
    title: str
    make: Callable[[], Any]
    shape: tuple[int, ...]
    dtype: str
    goals: dict[int, float]  # batch size → times as fast as FP32

    @property
    def path(self) -> Path:
        return CACHE / f"{self.name}.pb"

    def batches(self, count: int, size: int, seed: int = SEED) -> Iterator[np.ndarray]:
        random = np.random.default_rng(seed)
        for _ in range(count):
            if self.dtype == "int32":
                yield random.integers(0, VOCABULARY, (size, *self.shape)).astype(np.int32)
            else:
                yield random.standard_normal((size, *self.shape)).astype(np.float32)


def _application(name: str) -> Any:
    import tensorflow as tf

    model = getattr(tf.keras.applications, name)(weights=None)
    # One step with data lets batch norms keep a random net's values in a sane range.
    norms = [x for x in model.layers if isinstance(x, tf.keras.layers.BatchNormalization)]
    for norm in norms:
        norm.momentum = 0.0
    model(np.random.default_rng(SEED).standard_normal((2, 224, 224, 3), "float32"), training=True)
    return model


def _bert() -> Any:
    """Six layers of a BERT-base encoder, on token numbers."""
    import tensorflow as tf

    layers = tf.keras.layers
    tokens = tf.keras.Input((SEQUENCE,), dtype="int32", name="tokens")
    x = layers.LayerNormalization()(layers.Embedding(VOCABULARY, WIDTH)(tokens))
    for _ in range(LAYERS):
        mixed = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
        x = layers.LayerNormalization()(x + mixed)
        wide = layers.Dense(4 * WIDTH, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(WIDTH)(wide))
    return tf.keras.Model(tokens, layers.Dense(2)(x))


_IMAGE = (224, 224, 3)
NETS = {
    net.name: net
    for net in (
        TfNet(
            "tf_resnet50",
            "ResNet50",
            lambda: _application("ResNet50"),
            _IMAGE,
            "float32",
            {1: 2.1, 8: 2.1},
        ),
        TfNet(
            "tf_mobilenet",
            "MobileNet v1",
            lambda: _application("MobileNet"),
            _IMAGE,
            "float32",
            {1: 1.5},
        ),
        TfNet(
            "tf_mobilenet_v2",
            "MobileNetV2",
            lambda: _application("MobileNetV2"),
            _IMAGE,
            "float32",
            {1: 1.2},
        ),
        TfNet("tf_bert", "BERT-like, 6 layers", _bert, (SEQUENCE,), "int32", {1: 2.0, 8: 2.0}),
    )
}


def frozen(net: TfNet) -> Path:
    """The FP32 net as a frozen graph; made on the first call only."""
    if net.path.exists():
        return net.path
    import tensorflow as tf

    from lpot.backends import get_backend

    logger.info("freezing %s", net.name)
    tf.keras.utils.set_random_seed(SEED)
    backend = get_backend("tensorflow")
    backend.save(backend.load(net.make()), net.path)
    return net.path
