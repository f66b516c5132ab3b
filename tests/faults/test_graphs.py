"""Random graphs, and names that clash with those lpot makes up: no rewrite changes the function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import onnx_models
from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.run import run_session, session
from lpot.core.space import restrict
from random_graphs import random_graph


def worst(expected: list[np.ndarray], found: list[np.ndarray]) -> float:
    pairs = zip(expected, found, strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-9)) for a, b in pairs)


def check(model: ModelProto, least: float = 0.98) -> None:
    """Prepared, put back to float, static and dynamic: all close to the model as given."""
    backend = OnnxBackend()
    data = onnx_models.feeds(model, count=3, batch=4)
    truth = onnx_models.run(model, data[0])
    source = backend.load(model)
    prepared = run_session(session(source.prepared), source.inputs, data[0])
    assert worst(truth, prepared) < 1e-3, "the passes changed the function"
    for approach in ("static", "dynamic"):
        space = restrict(backend.inspect(source, approach), ())
        if not space.choices:
            continue
        observed = backend.observe(source, data, (0,))[0] if approach == "static" else None
        recipe = space.default()
        built = backend.build(source, recipe, observed)
        assert onnx_models.fidelity(model, data)(built.native) > least, approach
        floats = backend.build(source, space.with_float(recipe, list(recipe.ops)), observed)
        assert worst(truth, backend.run(floats, data[0])) < 1e-3


@pytest.mark.parametrize("seed", range(16))
def test_random_graphs(seed: int) -> None:
    check(random_graph(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16, 200))
def test_more_random_graphs(seed: int) -> None:
    check(random_graph(seed))


def test_a_weight_called_like_the_scale_of_a_tensor() -> None:
    """A batch norm that stays: its own `bn/scale` must not become the scale of its output `bn`."""
    net = onnx_models.Net()
    x = net.input("x", ["n", 4, 6, 6])
    values = {"scale": 1.5, "bias": 0.2, "mean": 0.1, "zero_point": 0.9}
    parts = [net.const(f"bn/{part}", np.full(4, v, np.float32)) for part, v in values.items()]
    net.op("BatchNormalization", [x, *parts], "bn", name="bn")
    net.weight("conv/weight", 4, 4, 3, 3)
    net.weight("conv/bias", 4)
    net.op("Conv", ["bn", "conv/weight", "conv/bias"], "conv", name="conv")
    net.weight("bn/quantized", 4, 1, 1)
    net.op("Mul", ["conv", "bn/quantized"], "conv/scale", name="scaled")
    net.op("Conv", ["conv/scale", "conv/weight", "conv/bias"], "conv/raw", name="again")
    check(net.model("conv/raw", "conv", "conv/scale"))


@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_a_model_made_here_and_left_half_in_float_is_finished(tune: Any, approach: str) -> None:
    """Its file is full of the names that are made up; the second run must find others."""
    net = onnx_models.Net()
    x = net.input("x", ["n", 8])
    for index in range(3):
        net.weight(f"w{index}", 8, 8)
    first = net.op("MatMul", [x, "w0"], name="first")
    joined = net.op("Add", [first, net.op("MatMul", [x, "w1"], name="second")], name="sum")
    model = net.model(net.op("MatMul", [joined, "w2"], name="third"))
    data = onnx_models.feeds(model, count=8)
    judge = onnx_models.fidelity(model, data)
    half = tune(model, data, judge, approach=approach, keep_fp32=["second", "third"])
    assert [key.name for key in half.recipe.low_ops if key.kind == "MatMul"] == ["first"]
    whole = tune(str(half.path), data, judge, approach=approach, new_run=True)
    assert not any(trial.error for trial in whole.trials)
    assert {"second", "third"} <= {key.name for key in whole.recipe.low_ops}
    assert whole.accuracy > 0.99
