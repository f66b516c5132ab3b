"""`auto`, and what is done with time that is left."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from lpot.core.goal import Objectives
from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.strategy import get_strategy
from lpot.strategy.auto import auto
from lpot.strategy.basic import basic
from strategy.stage import (
    INT8,
    KL,
    SETTLE,
    best,
    bound,
    drive,
    needs,
    op,
    sensitivity,
    space,
)


class TestAuto:
    @pytest.mark.parametrize("count", [4, 16, 33])
    def test_spends_no_more_than_basic_may(self, count: int) -> None:
        for guilty in range(count):
            seen = drive(auto, space(count), needs({guilty}), ranking=sensitivity(count, {0}))
            assert len(seen) <= bound(count) + (guilty == count - 1)

    def test_returns_those_that_were_not_to_blame(self) -> None:
        # op02 alone is guilty, and ranked third behind two innocents.
        ranking = {op(i): 1.0 - 0.1 * i if i < 3 else 1e-6 for i in range(16)}
        passes = needs({2})
        by_basic = drive(basic, space(16), passes, ranking=lambda: ranking)
        by_auto = drive(auto, space(16), passes, ranking=lambda: ranking, budget=True)
        assert len(best(by_basic, passes)) == 3
        assert best(by_auto, passes) == {"op02"}

    def test_without_a_budget_what_looks_guilty_is_not_tried_again(self) -> None:
        passes = needs({0, 1})
        ranking = {op(0): 0.6, op(1): 0.5, op(2): 1e-4, op(3): 1e-5, op(4): 1e-5}
        by_basic = drive(basic, space(5), passes, ranking=lambda: ranking, options=SETTLE)
        assert drive(auto, space(5), passes, ranking=lambda: ranking) == by_basic

    def test_with_a_budget_it_returns_one_by_one(self) -> None:
        ranking = {op(i): 1.0 - 0.1 * i if i < 4 else 1e-6 for i in range(8)}
        passes = needs({1, 3})
        seen = drive(auto, space(8), passes, ranking=lambda: ranking, budget=True)
        assert best(seen, passes) == {"op01", "op03"}

    @pytest.mark.parametrize(
        ("before", "after", "losers_go"),
        [(1.0, 1.1, True), (1.0, 0.95, True), (1.0, 0.5, False), (1e-3, 2e-3, False)],
    )
    def test_losers_of_a_slow_model_go_back(
        self, before: float, after: float, losers_go: bool
    ) -> None:
        gains = {op(0): -1.0, op(1): 1.0}
        seen = drive(
            auto, space(2), lambda r: True, gains=lambda: gains, latency=before, measured=after
        )
        assert [r.float_ops for r in seen[1:]] == ([(op(0),)] if losers_go else [])

    def test_with_a_budget_losers_go_back(self) -> None:
        gains = {op(0): -1.0, op(1): 1.0, op(2): 1.0}
        seen = drive(auto, space(3), lambda r: True, gains=lambda: gains, budget=True, latency=1.0)
        assert [recipe.float_ops for recipe in seen] == [(), (op(0),)]

    def test_losers_of_a_model_too_small_to_be_timed_stay(self) -> None:
        gains = {op(0): -1.0, op(1): 1.0, op(2): 1.0}
        seen = drive(auto, space(3), lambda r: True, gains=lambda: gains, budget=True, latency=1e-3)
        assert [recipe.float_ops for recipe in seen] == [()]

    def test_ops_with_most_time_to_gain_return_first(self) -> None:
        ranking = {op(i): 1.0 for i in range(4)} | {op(i): 1e-6 for i in range(4, 16)}
        gains = {op(i): 10.0 if i == 2 else 1.0 for i in range(16)}
        passes = needs({0, 1, 3})
        seen = drive(
            auto,
            space(16),
            passes,
            ranking=lambda: ranking,
            gains=lambda: gains,
            budget=True,
            latency=1.0,
        )
        assert best(seen, passes) == {"op00", "op01", "op03"}

    @pytest.mark.parametrize("budget", [False, True])
    def test_how_busy_the_machine_is_changes_no_recipe(self, budget: bool) -> None:
        ranking = {op(i): 0.05 if i < 6 else 1e-5 for i in range(16)}
        quiet = [(1e-3, 2.5e-4, 0.0)[i % 3] for i in range(16)]
        seen = []
        for seed in range(4):
            random = Random(seed)
            times = [g * random.uniform(0.85, 1.15) + random.uniform(-5e-6, 5e-6) for g in quiet]
            given: dict[str, Any] = {
                "gains": partial(dict, {op(i): time for i, time in enumerate(times)}),
                "ranking": lambda: ranking,
                "latency": 1.0,
                "measured": 0.95,
            }
            seen.append(drive(auto, space(16), needs({2, 5}), budget=budget, **given))
        assert seen[1:] == seen[:1] * 3

    def test_for_accuracy_it_tries_other_ranges(self) -> None:
        where = space(2, INT8, KL, FP32)
        aim = Objectives(("accuracy",))
        seen = drive(auto, where, lambda r: True, objectives=aim, budget=True)
        # Then the most sensitive ops in float, up to half of them.
        assert seen[1:] == [Recipe({op(0): KL, op(1): KL}), Recipe({op(0): FP32, op(1): INT8})]


def test_losers_that_are_all_of_it_stay() -> None:
    gains = {op(i): -1.0 for i in range(3)}
    seen = drive(auto, space(3), lambda recipe: True, gains=lambda: gains, budget=True, latency=1.0)
    assert seen == [space(3).default()]


class TestBudget:
    """Time that is left is used, by expected improvement."""

    @staticmethod
    def landscape(seed: int, count: int) -> tuple[dict[OpKey, float], Callable[[Recipe], bool]]:
        """A few samples decide: noise may push them either way, so that less is not always more."""
        rng = np.random.default_rng(seed)
        sensitivity = np.sort(10 ** rng.uniform(-5.5, -3.5, count))[::-1].copy()
        sensitivity[0] = 0.9
        shift = 100 * sensitivity + 200 * np.sqrt(sensitivity) * rng.standard_normal(count)

        def passes(recipe: Recipe) -> bool:
            low = [not recipe.ops[op(i)].is_float for i in range(count)]
            return bool(shift @ low < 1.0)

        return {op(i): float(value) for i, value in enumerate(sensitivity)}, passes

    @pytest.mark.parametrize("name", ["auto", "basic"])
    def test_fewer_ops_stay_in_float_than_by_bisection(self, name: str) -> None:
        kept: dict[bool, list[int]] = {False: [], True: []}
        for seed in range(12):
            sensitivity, passes = self.landscape(seed, 7)
            for budget in kept:
                seen = drive(
                    get_strategy(name),
                    space(7),
                    passes,
                    ranking=lambda h=sensitivity: h,
                    budget=budget,
                )
                assert len(seen) <= 11
                held = [len(recipe.float_ops) for recipe in seen if passes(recipe)]
                kept[budget].append(min(held, default=7))
        assert all(new <= old for new, old in zip(kept[True], kept[False], strict=True))
        assert sum(kept[True]) < 0.8 * sum(kept[False])

    def test_same_seed_same_recipes(self) -> None:
        sensitivity, passes = self.landscape(3, 20)
        one, two = (
            drive(auto, space(20), passes, ranking=lambda: sensitivity, budget=True)
            for _ in range(2)
        )
        assert one == two and len(one) > 3

    @pytest.mark.parametrize("word", ["performance", "modelsize", "accuracy"])
    def test_the_objective_counts_with_basic_too(self, word: str) -> None:
        where = space(8, INT8, KL, FP32)
        aim = Objectives((word,))  # type: ignore[arg-type]
        given = {"ranking": sensitivity(8, {0, 3}), "objectives": aim}
        by_basic, by_auto = (
            drive(get_strategy(name), where, needs({0}), budget=True, **given)
            for name in ("basic", "auto")
        )
        assert by_basic == by_auto
        first = drive(basic, where, needs({0}), options={"settle": False}, **given)
        assert len(by_basic) > len(first)
