"""An evaluation stops as soon as the bar is out of reach, and never before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx
from onnx import helper, numpy_helper

import lpot
from lpot.core import words
from lpot.core.evaluation.metric import Told
from lpot.core.evaluation.race import Race
from lpot.core.evaluation.tally import Tally
from lpot.core.files.history import History
from lpot.core.goal import Goal
from lpot.core.recipe import Recipe
from lpot.core.results.report import trial_row
from lpot.core.trial import Score, State, Trial
from lpot.metric import get_metric, multi_metrics


def model() -> onnx.ModelProto:
    """Two layers; of their inputs one sample in ten is enormous: INT8 loses all the others."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((8, 16)).astype(np.float32)
    weights = {"w1": first, "w2": rng.standard_normal((16, 4)).astype(np.float32)}
    weights["one"] = np.ones(16, np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="delicate"),
        helper.make_node("LayerNormalization", ["h", "one"], ["r"], name="norm"),
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
    x[::10] *= 3000
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
    note = next(note for note in result.notes if "out of reach" in note)
    raced = [trial for trial in result.trials if trial.score and trial.score.raced_out]
    seen = sum(trial.score.samples or 0 for trial in result.trials if trial.score)
    assert f"{len(raced)} of {len(result.trials)} evaluation(s)" in note
    assert f"{seen} of {400 * len(result.trials)} samples" in note
    stored = History.read(tmp_path / "history.jsonl").trials[0].score
    assert stored is not None and stored.bounds == first.score.bounds


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
    assert race.lost(Told(metric).tally, 0.0) is None, "one wrong of ten is allowed"
    metric.update(np.array([0]), np.array([1]))
    lost = race.lost(Told(metric).tally, 0.0)
    assert lost is not None
    assert lost.bounds == pytest.approx((0.0, 0.8))


def test_a_metric_that_is_no_mean_is_never_raced() -> None:
    metric = get_metric("F1")
    metric.update(np.array([0, 1]), np.array([1, 0]))
    assert Told(metric).tally is None
    assert Race(Goal(absolute=0.1), Score(1.0, samples=10)).lost(None, 0.0) is None


@pytest.mark.parametrize("higher", [True, False])
def test_never_lost_where_it_would_have_been_won(higher: bool) -> None:
    """Whatever the scores and the bar: a race given up would have missed, all samples counted."""
    rng = np.random.default_rng(7)
    given_up = 0
    for _ in range(300):
        scores = rng.random(40).round(1)
        goal = Goal(absolute=float(rng.random() * 0.3), higher_is_better=higher)
        baseline = Score(float(rng.random()), samples=40)
        race = Race(goal, baseline)
        met = goal.is_met(scores.sum() / 40, baseline.accuracy)
        for seen in range(1, 40):
            lost = race.lost(Tally(seen, scores[:seen].sum(), (0.0, 1.0)), 0.0)
            if lost is None:
                continue
            given_up += 1
            assert not met
            low, high = lost.bounds or (1, 0)
            assert low - 1e-9 <= scores.sum() / 40 <= high + 1e-9
            assert lost.accuracy == (low if higher else high)  # the worst it could have been
            assert seen >= (race.earliest((0.0, 1.0)) or 0)
    assert given_up > 100


@pytest.mark.parametrize(
    ("name", "options", "preds", "labels"),
    [
        ("topk", {"k": 1}, [[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], [1, 1, 1]),
        ("Accuracy", {}, [1, 0, 1], [1, 1, 1]),
        ("MSE", {}, [[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0], [9.0, 1.0]]),
        ("MAE", {}, [[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0], [9.0, 1.0]]),
        ("GLUE", {"task": "mrpc", "key": "acc"}, [[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], [1, 1, 1]),
        ("F1", {}, ["a red fox", "blue", "no"], ["red fox ran", "blue", "yes"]),
        ("SquadF1", {}, ["a red fox", "blue", "no"], [["red fox ran"], ["blue"], ["yes"]]),
        ("Loss", {}, [0.5, 1.5, 1.0], [0, 0, 0]),
    ],
)
def test_a_tally_is_the_result(name: str, options: dict, preds: list, labels: list) -> None:
    metric = get_metric(name, **options)
    for at in (slice(0, 2), slice(2, 3)):
        metric.update(preds[at], labels[at])
    tally = Told(metric).tally
    assert tally is not None
    assert tally.seen == 3
    assert tally.mean == pytest.approx(metric.result())


def test_weighted_metrics_tally() -> None:
    metric = multi_metrics({"topk": 1, "MSE": {}, "weight": [0.7, 0.3]})
    metric.update(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([[0.0, 1.0], [0.0, 1.0]]))
    tally = Told(metric).tally
    assert tally is not None
    assert tally.mean == pytest.approx(metric.result())
    assert tally.bounds == (-np.inf, 0.7)


@pytest.mark.parametrize(
    ("score", "goal", "told", "lost"),
    [
        (Score(0.11, bounds=(0.11, 0.88)), Goal(relative=0.01), "≤ 0.88", "≥ 12.00 %"),
        (
            Score(3.0, bounds=(1.4, 3.0)),
            Goal(absolute=0.1, higher_is_better=False),
            "≥ 1.4",
            "≥ 0.4",
        ),
        (Score(0.11, bounds=(-math.inf, 0.11)), Goal(relative=0.01), "≤ 0.11", "≥ 89.00 %"),
        (Score(0.5, bounds=(0.4, 0.6)), Goal(relative=0.01), "≈ 0.5", "≈ 50.00 %"),
        (Score(0.99), Goal(relative=0.01), "0.99", "1.00 %"),
    ],
)
def test_a_bound_is_never_told_as_a_score(score: Score, goal: Goal, told: str, lost: str) -> None:
    """Stopped early, the worst case was once shown as the accuracy: 0.108 where all give 0.852."""
    assert (words.scored(score, goal), words.loss(goal, score, 1.0)) == (told, lost)
    row = trial_row(Trial(1, Recipe({}), State.DONE, score), goal.higher_is_better)
    assert row.shown == told
    assert (row.accuracy is None) is (score.bounds is not None)
