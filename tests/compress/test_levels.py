"""The search through levels of pruning: what ends it, and what it goes on after."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from lpot.core.compress.settings import Structured
from lpot.core.recipe import FP32, Recipe
from lpot.core.strategy import Policy
from lpot.jobs.compress.job import GOES_ON, Levels
from lpot.strategy.basic import basic
from strategy.stage import INT8, KL, drive, op, space

WHERE = space(2, INT8, KL, FP32)


def searched(passes: Callable[[float | None, Recipe], bool]) -> tuple[list[Recipe], list[str]]:
    """What was tried, and told."""
    notes: list[str] = []
    levels = Levels.__new__(Levels)
    levels.job = SimpleNamespace(add_note=notes.append)  # type: ignore[assignment]
    levels.settings = Structured(ratios=(0.4, 0.2))
    levels._inner = basic
    levels._ready = lambda ratio, context: True  # type: ignore[method-assign]
    policy = Policy(levels.propose, settles=True)
    return drive(policy, WHERE, lambda recipe: passes(recipe.repairs.pruning, recipe)), notes


def of(recipe: Recipe) -> tuple[float | None, list[object]]:
    return recipe.repairs.pruning, [recipe.ops[op(0)], recipe.ops[op(1)]]


def test_the_first_level_in_int8_ends_it() -> None:
    seen, notes = searched(lambda ratio, recipe: True)
    assert list(map(of, seen)) == [(0.4, [INT8, INT8])] and not notes


def test_other_ranges_come_before_ops_in_fp32() -> None:
    seen, notes = searched(lambda ratio, recipe: recipe.ops[op(0)] != INT8)
    tried = [(0.4, [INT8, INT8]), (0.4, [FP32, FP32]), (0.4, [KL, KL])]
    assert list(map(of, seen)) == tried and not notes


@pytest.mark.parametrize("smaller", [True, False])
def test_a_level_that_needs_fp32_is_not_the_end(smaller: bool) -> None:
    """It may be slower than less pruning, or none."""

    def passes(ratio: float | None, recipe: Recipe) -> bool:
        return (ratio != 0.4 and (smaller or ratio is None)) or FP32 in recipe.ops.values()

    seen, notes = searched(passes)
    assert notes[0] == f"pruned 40% {GOES_ON['slow']}"
    assert of(seen[-1]) == ((0.2 if smaller else None), [INT8, INT8])
    assert not any("no pruned model" in note for note in notes)


def test_where_no_level_meets_the_bar_the_model_is_quantized_alone() -> None:
    seen, notes = searched(lambda ratio, recipe: ratio is None)
    assert [of(recipe)[0] for recipe in seen] == [0.4, 0.4, 0.2, 0.2, None]
    assert notes[0] == f"pruned 40% {GOES_ON['missed']}"
    assert notes[-1].startswith("no pruned model met the bar")
