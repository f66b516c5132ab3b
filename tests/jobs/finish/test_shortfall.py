"""What is said when the bar can't be met: the ops to blame with their shares, and what to try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")

from lpot.core.goal import Goal
from lpot.core.results.result import Result
from lpot.jobs.tune.api import tune
from search.tear import GUILTY

TORN = GUILTY["stubborn layer"](0)


def spiteful(model: Any) -> float:
    return 1.0 if model == TORN.model else 0.5


def missed(folder: Path, evaluate: Any = spiteful, **options: Any) -> str:
    result: Result = tune(
        TORN.model,
        TORN.batches[:-1],
        evaluate,
        **{"goal": Goal(absolute=0.1), **options},
        workspace=folder,
        measure_speed=False,
    )
    assert result.met is False
    (said,) = (note for note in result.notes if "was not reached" in note)
    return said


@pytest.mark.parametrize("strategy", ["basic", "random", "mse", "exhaustive"])
def test_the_ops_to_blame_are_named_whatever_the_strategy(strategy: str, tmp_path: Path) -> None:
    said = missed(tmp_path, strategy=strategy, max_trials=3)
    # Nearly all of the sensitivity is one op's, and its share says so.
    assert "most in low precision: conv2 (9" in said or "low precision: conv2 (100%)" in said


def test_a_limit_that_was_reached_is_what_to_raise(tmp_path: Path) -> None:
    said = missed(tmp_path, strategy="random", max_trials=2)
    assert "Try a larger max_trials or timeout" in said


def test_a_search_that_came_to_its_end_needs_no_more_trials(tmp_path: Path) -> None:
    said = missed(tmp_path)
    assert "max_trials" not in said and "`strategy: tpe`" in said and "or a wider bar" in said


def test_a_bar_that_allows_nothing(tmp_path: Path) -> None:
    assert "this one allows none" in missed(tmp_path, goal=0.0)


def test_a_goal_keeps_what_else_the_yaml_says_of_the_bar(tmp_path: Path) -> None:
    criterion = {"absolute": 5.0, "higher_is_better": False, "baseline_runs": 3}
    calls: list[float] = []

    def worse(model: Any) -> float:
        calls.append(spiteful(model))
        return 2.0 - calls[-1]  # a loss: 1.0 for FP32, 1.5 for anything else

    config = {"tuning": {"accuracy_criterion": criterion}}
    said = missed(tmp_path, worse, goal=0.01, config=config)
    assert "the bar of 1.01 was not reached" in said and calls[:4] == [1.0, 1.0, 1.0, 0.5]
