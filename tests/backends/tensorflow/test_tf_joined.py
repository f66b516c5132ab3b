"""Products that read the same rows for attention run as one, and give what they gave."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from lpot.backends import get_backend
from lpot.backends.tensorflow import build as building
from lpot.core.space import restrict

WIDTH, HEADS, POSITIONS = 32, 4, 6
DRAW = np.random.default_rng(4)
X = DRAW.normal(size=(3, POSITIONS, WIDTH)).astype(np.float32)


def heads(width: int, units: int = HEADS) -> Any:
    """Projections as keras.layers.MultiHeadAttention and most hand-written ones make them."""

    class Heads(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            shape = WIDTH, units * width
            self.weight = tf.Variable(DRAW.normal(size=shape).astype(np.float32) / 6)
            self.bias = tf.Variable(DRAW.normal(size=shape[1:]).astype(np.float32))

        def __call__(self, x: Any) -> Any:
            rows = tf.reshape(tf.reshape(x, [-1, WIDTH]) @ self.weight + self.bias, [-1])
            return tf.transpose(tf.reshape(rows, [-1, POSITIONS, units, width]), [0, 2, 1, 3])

    return Heads()


class Attention(tf.Module):
    def __init__(self, value_width: int = 8) -> None:
        super().__init__()
        self.parts = [heads(8), heads(8), heads(value_width)]

    @tf.function(input_signature=[tf.TensorSpec([None, POSITIONS, WIDTH])])
    def __call__(self, x: Any) -> Any:
        query, key, value = (part(x) for part in self.parts)
        scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * 0.5)
        return tf.matmul(scores, value)


class SeenInside(Attention):
    @tf.function(input_signature=[tf.TensorSpec([None, POSITIONS, WIDTH])])
    def __call__(self, x: Any) -> Any:
        query, key, value = (part(x) for part in self.parts)
        return tf.matmul(tf.nn.softmax(tf.matmul(query, key, transpose_b=True)), value), key


def keras_attention(positions: int | None = POSITIONS) -> Any:
    x = tf.keras.Input((positions, WIDTH))
    return tf.keras.Model(x, tf.keras.layers.MultiHeadAttention(HEADS, 8)(x, x))


def built(source: Any, keep: str = "") -> Any:
    backend: Any = get_backend("tensorflow")
    model = backend.load(source)
    recipe = restrict(backend.inspect(model), ()).default()
    kept = [key for key in recipe.ops if keep and keep in key.name]
    assert len(kept) == bool(keep)
    return backend, backend.build(
        model, recipe.with_float(kept), backend.observe(model, [(X,)], (0,))[0]
    )


def kinds(model: Any) -> Counter[str]:
    return Counter(node.op for node in model.net.nodes.values())


@pytest.mark.parametrize(
    ("make", "keep", "products", "parts"),
    [
        (keras_attention, "", 2, 1),  # query, key and value; what they come to
        (keras_attention, "query", 2, 1),  # key and value
        (lambda: keras_attention(None), "", 2, 1),
        (Attention, "", 1, 1),
        (lambda: Attention(value_width=4), "", 2, 1),  # the value is no part of it
        (SeenInside, "", 1, 1),  # a key may be an output as well
    ],
)
def test_products_of_the_same_rows_are_one(
    make: Any, keep: str, products: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make()
    backend, joined = built(source, keep)
    found = kinds(joined)
    assert (found["_QuantizedMatMul"], found["Unpack"]) == (products, parts)
    monkeypatch.setattr(building, "join_products", lambda net: net)
    _, apart = built(source, keep)
    assert kinds(apart)["_QuantizedMatMul"] > products
    shorter = [X[:2, :4]] if joined.inputs[0].shape[1] is None else []
    for batch in (X, X[:1], *shorter):
        for one, other in zip(
            backend.run(joined, (batch,)), backend.run(apart, (batch,)), strict=True
        ):
            np.testing.assert_array_equal(one, other)
