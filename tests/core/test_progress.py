"""Whoever listens hears how far the work is, also from code that was given no listener."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpot.core.evaluation.evaluate import MetricEvaluator
from lpot.core.progress import Listener, counted, heard_by, tracked


class Ear(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def expect(self, total: int) -> None:
        self.heard.append(("expect", total))

    def step(self, done: int) -> None:
        self.heard.append(("step", done))


def test_counted() -> None:
    ear = Ear()
    assert list(counted(iter("ab"), ear)) == ["a", "b"]
    assert ear.heard == [("step", 1), ("step", 2)]


def test_tracked_is_heard_by_the_job_around_it() -> None:
    ear, other = Ear(), Ear()
    assert list(tracked([1, 2])) == [1, 2]  # nobody listens
    with heard_by(other), heard_by(ear):
        assert list(tracked(["a"])) == ["a"]
    with heard_by(other):
        list(tracked([]))
    assert ear.heard == [("expect", 1), ("step", 1)]
    assert other.heard == [("expect", 0)]


class Mean:
    def reset(self) -> None:
        self.values: list[float] = []

    def update(self, preds: Any, labels: Any) -> None:
        self.values.append(float(np.mean(preds == labels)))

    def result(self) -> float:
        return float(np.mean(self.values))


class Same:
    """A backend and a model in one, whose outputs are its inputs."""

    recipe = None
    input_names = ("x",)

    def tries(self) -> None:
        """Its inputs are known by name."""

    @property
    def backend(self) -> Same:
        return self

    def run_all(self, model: Any, inputs: Any) -> list[Any]:
        return [inputs[0]]


class Unending:
    def __iter__(self) -> Any:
        return iter([(np.ones(2), np.ones(2))] * 3)

    def __len__(self) -> int:
        raise TypeError("of unknown length")


@pytest.mark.parametrize(
    ("loader", "iteration", "expected"),
    [
        ([(np.ones(2), np.ones(2))] * 5, -1, 5),
        ([(np.ones(2), np.ones(2))] * 5, 2, 2),
        (Unending(), -1, None),
        (Unending(), 2, 2),
    ],
)
def test_an_evaluation_by_metric_tells_its_length(
    loader: Any, iteration: int, expected: int | None
) -> None:
    ear = Ear()
    evaluator = MetricEvaluator(loader, Mean(), iteration=iteration, listener=ear)
    assert evaluator(Same()).accuracy == 1.0  # type: ignore[arg-type]
    told = [number for word, number in ear.heard if word == "expect"]
    assert told == ([] if expected is None else [expected])
    assert ear.heard[-1] == ("step", expected or 3)
