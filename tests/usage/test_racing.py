"""Racing never changes a verdict: what it gives up would have missed, what it finishes is exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lpot
import onnx_models
from lpot.core.evaluation.evaluate import Evaluator, FunctionEvaluator, MetricEvaluator
from lpot.core.evaluation.race import Race
from lpot.core.goal import Goal
from lpot.data import DataLoader
from lpot.metric import METRICS, get_metric

ROUNDS = 40


class Fake:
    """A model that says what it was made to say; sample n is the number n."""

    input_names = ("x",)
    recipe = None

    def __init__(self, outputs: np.ndarray) -> None:
        self.outputs = outputs
        self.backend = self
        self.native = outputs

    def tries(self) -> None:
        return None

    def run_all(self, model: Any, inputs: Any) -> list[np.ndarray]:
        return [self.outputs[np.asarray(inputs[0])[:, 0].astype(int)]]


class Numbered:
    """Sample n is the number n and its label."""

    def __init__(self, labels: np.ndarray) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[np.ndarray, Any]:
        return np.asarray([number], dtype=np.float32), self.labels[number]


def by_loader(metric: Any, labels: np.ndarray, scores: Callable[..., Any], size: int) -> Evaluator:
    return MetricEvaluator(DataLoader(Numbered(labels), batch_size=size), metric)


def by_list(metric: Any, labels: np.ndarray, scores: Callable[..., Any], size: int) -> Evaluator:
    return MetricEvaluator(list(DataLoader(Numbered(labels), batch_size=size)), metric)


def by_generator(
    metric: Any, labels: np.ndarray, scores: Callable[..., Any], size: int
) -> Evaluator:
    def each_batch(outputs: np.ndarray) -> Iterator[Any]:
        for start in range(0, len(labels), size):
            part = scores(outputs[start : start + size], labels[start : start + size])
            yield part if start % 2 else (part.sum(), len(part))

    return FunctionEvaluator(each_batch)


def by_limit(metric: Any, labels: np.ndarray, scores: Callable[..., Any], size: int) -> Evaluator:
    def first(outputs: np.ndarray, limit: int | None = None) -> np.ndarray:
        return scores(outputs[:limit], labels[:limit])

    return FunctionEvaluator(first)


def right(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (outputs.argmax(1) == labels).astype(np.float64)


def error(outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.abs(outputs - labels).mean(axis=1)


def classes(rng: np.random.Generator, count: int) -> tuple[np.ndarray, Callable[[], np.ndarray]]:
    """Labels, and a maker of models that are wrong ever so often."""
    labels = rng.integers(0, 4, count)

    def model() -> np.ndarray:
        wrong = rng.random(count) < rng.choice([0.02, 0.1, 0.3])
        said = np.where(wrong, rng.integers(0, 4, count), labels)
        return np.eye(4)[said] * rng.uniform(0.1, 3, (count, 1))

    return labels, model


def values(rng: np.random.Generator, count: int) -> tuple[np.ndarray, Callable[[], np.ndarray]]:
    labels = rng.standard_normal((count, 3))
    return labels, lambda: labels + rng.standard_normal((count, 3)) * rng.choice([0.01, 0.05, 0.2])


FORMS = {"loader": by_loader, "list": by_list, "generator": by_generator, "limit": by_limit}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["topk", "MAE"])
def test_a_verdict_is_that_of_the_whole_evaluation(form: str, name: str) -> None:
    rng = np.random.default_rng([11, len(form)])
    given_up = finished = 0
    for _ in range(ROUNDS):
        count, size = int(rng.integers(20, 200)), int(rng.choice([1, 4, 7, 32]))
        make, scores = (classes, right) if name == "topk" else (values, error)
        labels, model = make(rng, count)
        evaluate = FORMS[form](get_metric(name), labels, scores, size)
        baseline = evaluate(Fake(model()))
        goal = Goal(
            absolute=float(rng.choice([0.0, 0.005, 0.02, 0.1])), higher_is_better=name == "topk"
        )
        other = Fake(model())
        whole, raced = evaluate(other), evaluate(other, Race(goal, baseline))
        met = goal.is_met(whole.accuracy, baseline.accuracy)
        if not raced.raced_out:
            finished += 1
            assert raced.accuracy == pytest.approx(whole.accuracy, rel=1e-12)
            continue
        given_up += 1
        low, high = raced.bounds or (1.0, 0.0)
        assert not met
        assert low - 1e-9 <= whole.accuracy <= high + 1e-9
        assert (raced.samples or 0) < count
    assert given_up and finished


# -- a whole search -----------------------------------------------------------------------------


def net() -> onnx.ModelProto:
    """Three layers, the first of them delicate: a tenth of its inputs is enormous."""
    made = onnx_models.Net(seed=4)
    last = made.input("x", ["n", 8])
    for number, (rows, columns) in enumerate([(8, 16), (16, 16), (16, 4)]):
        made.weight(f"w{number}", rows, columns, scale=1.0)
        last = made.op("MatMul", [last, f"w{number}"], name=f"layer{number}")
        if number < 2:
            made.const(f"one{number}", np.ones(columns, np.float32))
            last = made.op("LayerNormalization", [last, f"one{number}"], name=f"norm{number}")
    return made.model(last)


def samples(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    import onnxruntime

    x = np.random.default_rng(1).standard_normal((count, 8)).astype(np.float32)
    x[::10] *= 3000
    session = onnxruntime.InferenceSession(net().SerializeToString())
    labels = session.run(None, {"x": x})[0].argmax(1)
    labels[::7] = (labels[::7] + 1) % 4
    return x, labels


class Unraced(METRICS["Accuracy"]):  # type: ignore[misc]
    """The same score, without saying how far it has come."""

    tally = None


@pytest.mark.parametrize("bar", [0.01, 0.2])
@pytest.mark.parametrize("trials", [1, 20])
def test_a_search_ends_the_same_with_and_without(tmp_path: Path, bar: float, trials: int) -> None:
    x, labels = samples()

    def search(metric: Any, where: str) -> Any:
        return lpot.tune(
            net(),
            calib=[x[:20]],
            eval_loader=DataLoader(list(zip(x, labels, strict=True)), batch_size=9),
            metric=metric,
            goal=bar,
            max_trials=trials,
            workspace=tmp_path / where,
            measure_speed=False,
        )

    raced, plain = search("Accuracy", "raced"), search(Unraced(), "plain")
    assert raced.met is plain.met
    assert [trial.met for trial in raced.trials] == [trial.met for trial in plain.trials]
    assert raced.best is not None and plain.best is not None
    assert raced.best.recipe == plain.best.recipe
    assert raced.best.accuracy == plain.best.accuracy
    assert raced.best.score is not None and not raced.best.score.raced_out
    early = [trial for trial in raced.trials if trial.score and trial.score.raced_out]
    told = [note for note in raced.notes if "out of reach" in note]
    assert bool(early) == bool(told)
    for trial in early:
        twin = next(one for one in plain.trials if one.recipe == trial.recipe)
        low, high = trial.score.bounds
        assert low - 1e-9 <= twin.accuracy <= high + 1e-9
