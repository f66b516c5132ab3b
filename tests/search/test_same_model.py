"""A recipe counts by what is built of it: no model is evaluated twice, and FP32 is no answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend
from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace, restrict
from lpot.core.strategy import Proposals, StrategyContext
from lpot.core.trial import Trial

GOAL: Any = {"tuning": {"accuracy_criterion": {"absolute": 0.01}, "exit_policy": {"max_trials": 9}}}


def followers_only() -> onnx.ModelProto:
    """Sums, pooling and a depthwise convolution: each gains between INT8 ops, and there is none."""
    net = onnx_models.Net()
    x = net.input("x", ["n", 8, 8, 8])
    last = net.op("Conv", [x, net.weight("w", 8, 1, 3, 3)], "d", name="depthwise", group=8)
    last = net.op("Relu", [net.op("Add", [last, last], name="sum")], name="relu")
    return net.model(net.op("MaxPool", [last], name="pool", kernel_shape=[2, 2]))


def two_products() -> onnx.ModelProto:
    net = onnx_models.Net()
    last = net.op("MatMul", [net.input("x", ["n", 16]), net.weight("a", 16, 16)], name="first")
    last = net.op("Relu", [last], name="relu")
    last = net.op("MatMul", [last, net.weight("b", 16, 16)], name="second")
    last = net.op("Sigmoid", [last], name="gate")
    return net.model(net.op("MatMul", [last, net.weight("c", 16, 16)], name="third"))


def tune(model: onnx.ModelProto, folder: Path, **options: Any) -> tuple[lpot.Result, list[int]]:
    data = onnx_models.feeds(model)
    closeness = onnx_models.fidelity(model, data)
    calls: list[int] = []

    def score(candidate: Any) -> float:
        calls.append(1)
        return closeness(candidate)

    settings = {"config": GOAL, "workspace": folder, "measure_speed": False, **options}
    return lpot.tune(model, data, score, **settings), calls


@pytest.mark.parametrize("strategy", ["basic", "auto", "mse", "mse_v2", "random", "conservative"])
def test_nothing_but_followers_is_nothing_to_quantize(strategy: str, tmp_path: Path) -> None:
    result, calls = tune(followers_only(), tmp_path, strategy=strategy)
    assert result.met is True and not calls and not result.trials
    (note,) = [text for text in result.notes if "no op of this model can be quantized" in text]
    assert "INT8 pays off only between INT8 ops" in note
    assert result.precisions.get("int8", 0) == 0


def test_what_the_user_leaves_comes_to_nothing(tmp_path: Path) -> None:
    keep = ["first", "second", "third"]
    result, calls = tune(two_products(), tmp_path, keep_fp32=keep)
    assert result.met is True and not calls
    assert any("under your rules" in note for note in result.notes)


def test_recipes_of_one_model_are_evaluated_once(tmp_path: Path) -> None:
    seen: list[Trial] = []

    def wasteful(space: TuningSpace, context: StrategyContext) -> Proposals:
        start = space.default()
        named = {key.name: key for key in start.ops}
        lone = start.with_float([named["first"], named["second"]])
        for recipe in (
            lone,  # nothing but the third product: the followers before it drop out
            lone.with_float([named["relu"], named["gate"]]),
            start.with_float(named[name] for name in ("first", "second", "third")),
        ):
            seen.extend((yield [recipe]))

    config = {"tuning": {"exit_policy": {"timeout": 1000, "max_trials": 9}}}
    result, calls = tune(two_products(), tmp_path, strategy=wasteful, config=config)
    once, again, nothing = seen
    assert once.score == again.score and once.recipe != again.recipe
    assert len(result.trials) == 1 and len(calls) == 2  # FP32, and one model
    assert nothing.met is False and nothing.recipe.float_ops


def test_the_outcome_is_what_is_built() -> None:
    model = onnx_models.cnn()
    backend = OnnxBackend()
    loaded = backend.load(model)
    space = restrict(backend.inspect(loaded), ())
    seen = backend.observe(loaded, onnx_models.feeds(model))[0]
    random = np.random.default_rng(0)
    for _ in range(20):
        ops = space.default().ops
        chosen = Recipe(ops).with_float(key for key in ops if random.random() < 0.4)
        built = backend.build(loaded, chosen, seen)
        low = {key for key, word in built.precisions.items() if word == "int8" and key in ops}
        assert set(backend.outcome(loaded, chosen).low_ops) == low
