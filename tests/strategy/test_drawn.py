"""Strategies that draw or list recipes: random, exhaustive, and by Optuna."""

from __future__ import annotations

import pytest

from lpot.core.recipe import FP32
from lpot.strategy import PACKAGES, get_strategy
from lpot.strategy.basic import basic
from lpot.strategy.exhaustive import exhaustive
from lpot.strategy.random import random
from strategy.stage import (
    INT8,
    KL,
    SETTLE,
    drive,
    needs,
    op,
    sensitivity,
    space,
)


@pytest.mark.parametrize("name", ["bayesian", "tpe", "random", "exhaustive"])
@pytest.mark.parametrize("guilty", [{0}, {3, 7}, {1, 2, 11}, {15}])
def test_none_is_worse_than_basic_at_equal_trials(name: str, guilty: set[int]) -> None:
    pytest.importorskip("optuna" if name in PACKAGES else "numpy")
    where, given = (
        space(16, INT8, KL, FP32),
        {"ranking": sensitivity(16, guilty), "options": SETTLE},
    )
    by_basic = drive(basic, where, needs(guilty), **given)
    seen = drive(get_strategy(name), where, needs(guilty), len(by_basic) + 3, **given)
    assert seen[: len(by_basic)] == by_basic
    assert len({recipe.digest for recipe in seen}) == len(seen)


def test_draws_follow_the_ranking() -> None:
    seen = drive(random, space(8), lambda recipe: False, 60, ranking=sensitivity(8, {2, 5}))
    times = {key: sum(key in recipe.float_ops for recipe in seen) for key in space(8).choices}
    assert min(times[op(2)], times[op(5)]) > max(times[op(6)], times[op(7)])


class TestRandom:
    def test_same_seed_same_recipes(self) -> None:
        one, two, other = (
            drive(random, space(6, INT8, KL, FP32), lambda r: False, limit=20, seed=seed)
            for seed in (1, 1, 2)
        )
        assert one == two
        assert one != other

    def test_never_repeats_and_ends(self) -> None:
        seen = drive(random, space(3), lambda recipe: False)
        assert len({recipe.digest for recipe in seen}) == len(seen) == 8 - 1  # without FP32 itself


class TestExhaustive:
    def test_covers_the_whole_space_once(self) -> None:
        seen = drive(exhaustive, space(3, INT8, KL, FP32, samples=(10, 20)), lambda recipe: False)
        assert len({recipe.digest for recipe in seen}) == len(seen) == (3**3 - 1) * 2

    def test_most_wanted_first(self) -> None:
        by_basic = drive(basic, space(3), lambda recipe: False)
        seen = drive(exhaustive, space(3), lambda recipe: False)
        assert seen[: len(by_basic)] == by_basic
        rest = [len(recipe.float_ops) for recipe in seen[len(by_basic) :]]
        assert rest == sorted(rest) and len(seen) == 7
