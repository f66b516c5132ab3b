"""Which trial is better: each rule in its turn, and nobody else decides."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lpot.core.goal import Goal, Objective, Objectives
from lpot.core.preference import Preference, recorded
from lpot.core.trial import Score, State, Trial
from strategy.stage import op, space

GOAL = Goal(relative=0.01)
FP32 = Score(0.9, latency=0.010, size=4000, memory=4000)
ROOT = Path(__file__).parents[2] / "src" / "lpot"


def trial(number: int, score: Score | None, met: bool = True, floats: int = 0) -> Trial:
    where = space(4)
    recipe = where.with_float(where.default(), [op(n) for n in range(floats)])
    if score is None:
        return Trial.failed(number, recipe, RuntimeError("no"), 0.0)
    return Trial(number, recipe, State.DONE, score, met)


# Each is the best of its own objective, and of no other.
FAST = trial(1, Score(0.895, latency=0.002, size=2000, memory=2000), floats=0)
SMALL = trial(2, Score(0.896, latency=0.006, size=1000, memory=2100), floats=1)
LEAN = trial(3, Score(0.897, latency=0.007, size=2200, memory=1000), floats=2)
ACCURATE = trial(4, Score(0.899, latency=0.008, size=2400, memory=2200), floats=3)
ALL = (FAST, SMALL, LEAN, ACCURATE)


@pytest.mark.parametrize("order", [ALL, ALL[::-1]], ids=["forwards", "backwards"])
@pytest.mark.parametrize(
    ("word", "wanted"),
    [("performance", FAST), ("modelsize", SMALL), ("footprint", LEAN), ("accuracy", ACCURATE)],
)
def test_the_objective_decides_among_those_that_hold_the_bar(
    word: Objective, wanted: Trial, order: tuple[Trial, ...]
) -> None:
    assert Preference(GOAL, FP32, Objectives((word,))).best(order) is wanted


def test_the_bar_comes_before_any_objective() -> None:
    missed = trial(5, Score(0.5, latency=0.0001), met=False, floats=1)
    preference = Preference(GOAL, FP32)
    assert preference.prefers(ACCURATE, missed) and not preference.prefers(missed, ACCURATE)


@pytest.mark.parametrize(("higher", "wanted"), [(True, 2), (False, 1)])
def test_below_the_bar_the_accuracy_decides(higher: bool, wanted: int) -> None:
    one = trial(1, Score(0.5, latency=0.001), met=False, floats=1)
    two = trial(2, Score(0.6, latency=0.009), met=False, floats=2)
    best = Preference(Goal(relative=0.01, higher_is_better=higher), FP32).best([one, two])
    assert best is not None and best.number == wanted


def test_where_the_clock_can_not_tell_less_fp32_wins() -> None:
    slow = trial(1, Score(0.9, latency=0.0050), floats=2)
    less = trial(2, Score(0.9, latency=0.0052), floats=1)
    unmeasured = [trial(n, Score(0.9), floats=n) for n in (3, 1, 2)]
    assert Preference(GOAL, FP32).best([slow, less]) is less
    assert Preference(GOAL, FP32).best(unmeasured) is unmeasured[1]


def test_among_equals_the_smaller_file_wins() -> None:
    one = trial(1, Score(0.9, latency=0.005, size=1000), floats=1)
    padded = trial(2, Score(0.9, latency=0.005, size=990), floats=1)
    smaller = trial(3, Score(0.9, latency=0.005, size=900), floats=1)
    preference = Preference(GOAL, FP32)
    assert preference.prefers(smaller, one) and not preference.prefers(one, smaller)
    assert not preference.prefers(padded, one)


def test_what_failed_is_never_the_best() -> None:
    failed = trial(1, None)
    assert Preference(GOAL, FP32).best([failed]) is None
    assert Preference(GOAL, FP32).best([failed, FAST, failed]) is FAST


def test_a_recipe_scored_again_counts_by_its_last_score() -> None:
    cut_short = trial(1, Score(0.6, bounds=(0.6, 0.8)), met=False)
    in_full = trial(2, Score(0.6), met=False)
    assert Preference(GOAL, FP32).best([cut_short, in_full]) is in_full


def test_a_header_gives_it_back() -> None:
    both = Objectives(("accuracy", "modelsize"), (0.5, 2.0))
    info = {"goal": GOAL.to_json(), "objectives": both.to_json()}
    assert recorded(info, FP32) == Preference(GOAL, FP32, both)


@pytest.mark.parametrize("objectives", [None, {}, {"words": ["speed"], "weights": [1]}, 3])
def test_an_older_or_foreign_header_means_the_usual(objectives: object) -> None:
    found = recorded({"objectives": objectives}, None)
    assert found.objectives == Objectives() and found.goal.higher_is_better


def test_nobody_else_weighs_two_trials() -> None:
    """`cost` of the objectives is what a second opinion would need."""
    callers = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "cost"
    }
    assert callers <= {"core/preference.py", "strategy/ask_tell.py"}
