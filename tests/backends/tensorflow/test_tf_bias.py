"""Biases take back what rounding weights adds to the mean of the outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import Maker, graph_of
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.core.recipe import OpConfig, Recipe
from lpot.core.repairs import NONE, Repairs
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
WIDTH = 8


def picture() -> Any:
    return v1.placeholder(tf.float32, [None, 12, 12, WIDTH], name="x")


def conv(make: Maker) -> None:
    made = tf.nn.conv2d(picture(), make.weight(3, 3, WIDTH, 16), 1, "VALID", name="op")
    tf.identity(tf.nn.bias_add(made, make.vector(16)), name="y")


def bare_conv(make: Maker) -> None:
    weight = make.weight(3, 3, WIDTH, 16)
    tf.identity(tf.nn.conv2d(picture(), weight, 1, "VALID", name="op"), name="y")


def depthwise(make: Maker) -> None:
    weight = make.weight(3, 3, WIDTH, 2)
    made = tf.nn.depthwise_conv2d(picture(), weight, [1, 1, 1, 1], "VALID", name="op")
    tf.identity(tf.nn.bias_add(made, make.vector(2 * WIDTH)), name="y")


def product(transposed: bool) -> Callable[[Maker], None]:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, WIDTH], name="x")
        shape = (16, WIDTH) if transposed else (WIDTH, 16)
        made = tf.matmul(x, make.weight(*shape), transpose_b=transposed, name="op")
        tf.identity(tf.nn.bias_add(made, make.vector(16)), name="y")

    return build


def coarse(config: OpConfig) -> OpConfig:
    """Weights of few steps, so that what rounding them does shows."""
    assert config.weight is not None
    return replace(config, weight=replace(config.weight, granularity="per_tensor", bits=4))


@pytest.mark.parametrize(
    ("build", "rank"),
    [(conv, 4), (bare_conv, 4), (depthwise, 4), (product(True), 2), (product(False), 2)],
    ids=["conv", "conv without bias", "depthwise", "transposed product", "product"],
)
def test_the_means_of_the_outputs_are_corrected(build: Callable[[Maker], None], rank: int) -> None:
    model = BACKEND.load(graph_of(build))
    random = np.random.default_rng(2)
    shape = (32, 12, 12, WIDTH) if rank == 4 else (512, WIDTH)
    around = np.linspace(0.5, 3.0, WIDTH)
    batches = [((around + random.normal(size=shape)).astype(np.float32),) for _ in range(3)]
    seen = BACKEND.observe(model, batches, (0,))[0]
    np.testing.assert_allclose(seen.means["x"], around, atol=0.1)
    start = restrict(BACKEND.inspect(model, target="vnni"), ()).default()
    recipe = Recipe({key: coarse(config) for key, config in start.ops.items()})
    truth = BACKEND.run(model, batches[0])[0]

    def shift(repairs: Repairs) -> float:
        built = BACKEND.build(model, replace(recipe, repairs=repairs), seen)
        error = BACKEND.run(built, batches[0])[0] - truth
        return float(np.abs(error.mean(axis=tuple(range(rank - 1)))).mean())

    assert shift(BACKEND.repairs) < 0.2 * shift(NONE)
    (usual,) = BACKEND.rank(model, recipe, seen).values()
    (corrected,) = BACKEND.rank(model, replace(recipe, repairs=BACKEND.repairs), seen).values()
    assert corrected < usual or build is bare_conv  # there the ranking has no bias to correct


def test_means_are_those_of_all_batches() -> None:
    model = BACKEND.load(graph_of(conv))
    random = np.random.default_rng(2)
    shapes = [(size, 12, 12, WIDTH) for size in (1, 6, 2)]
    batches = [
        (random.normal(at, size=shape).astype(np.float32),) for at, shape in enumerate(shapes)
    ]
    seen = BACKEND.observe(model, batches, (0,))[0]
    every = np.concatenate([batch[0] for batch in batches])
    np.testing.assert_allclose(seen.means["x"], every.mean(axis=(0, 1, 2)), rtol=1e-4)
