"""An evaluation stops as soon as the bar is out of reach, and never before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx
from onnx import helper, numpy_helper

import lpot
from lpot.core.goal import Goal
from lpot.core.race import Race, hardest_first, margins
from lpot.core.trial import Score
from lpot.metric import get_metric


def model() -> onnx.ModelProto:
    """Two layers whose first input channel is enormous: INT8 loses the others, which decide."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((8, 16)).astype(np.float32)
    first[0] *= 1e-4
    weights = {"w1": first, "w2": rng.standard_normal((16, 4)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="delicate"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="head"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", 1, ["n", 8])],
        [helper.make_tensor_value_info("y", 1, ["n", 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    import onnxruntime

    x = np.random.default_rng(1).standard_normal((count, 8)).astype(np.float32)
    x[:, 0] *= 3000
    session = onnxruntime.InferenceSession(model().SerializeToString())
    return x, session.run(None, {"x": x})[0].argmax(1)


class Loader:
    """Counts the batches it gives."""

    def __init__(self, batches: list) -> None:
        self.inner = batches
        self.given = 0

    def __iter__(self) -> Iterator:
        for batch in self.inner:
            self.given += 1
            yield batch


def batches() -> list:
    x, y = data()
    return [(x[i : i + 20], y[i : i + 20]) for i in range(0, 400, 20)]


def test_bad_trials_are_raced_out_and_the_answer_is_full(tmp_path: Path) -> None:
    loader = Loader(batches())
    result = lpot.tune(
        model(),
        calib=[batch[0] for batch in batches()[:4]],
        eval_loader=loader,
        metric="Accuracy",
        goal=0.01,
        workspace=tmp_path,
        measure_speed=False,
    )
    first = result.trials[0]
    assert first.score is not None
    assert first.score.raced_out
    assert first.score.samples is not None
    assert first.score.samples < 400
    low, high = first.score.bounds or (0, 0)
    assert low <= high < 0.99
    assert result.met
    assert result.best is not None and result.best.score is not None
    assert not result.best.score.raced_out
    assert result.float_ops == ("delicate",)
    assert loader.given < 20 * (result.evaluations)


def test_best_effort_is_evaluated_in_full(tmp_path: Path) -> None:
    result = lpot.tune(
        model(),
        calib=[batch[0] for batch in batches()[:4]],
        eval_loader=batches(),
        metric="Accuracy",
        goal=0.01,
        max_trials=1,
        workspace=tmp_path,
        measure_speed=False,
    )
    assert result.met is False
    assert result.best is not None and result.best.score is not None
    assert result.best.score.samples == 400
    assert not result.best.score.raced_out


def test_the_bound_is_exact() -> None:
    race = Race(Goal(absolute=0.1), Score(1.0, samples=10))
    metric = get_metric("Accuracy")
    metric.update(np.array([0]), np.array([1]))
    assert race.lost(metric, 0.0) is None, "one wrong of ten is allowed"
    metric.update(np.array([0]), np.array([1]))
    lost = race.lost(metric, 0.0)
    assert lost is not None
    assert lost.bounds == pytest.approx((0.0, 0.8))


def test_a_metric_that_is_no_mean_is_never_raced() -> None:
    metric = get_metric("F1")
    metric.update(np.array([0, 1]), np.array([1, 0]))
    assert Race(Goal(absolute=0.1), Score(1.0, samples=10)).lost(metric, 0.0) is None


def test_narrow_batches_come_first() -> None:
    wide, narrow = np.array([[0.0, 9.0]]), np.array([[1.0, 1.1]])
    assert hardest_first([margins(wide), margins(narrow)]) == [1, 0]
