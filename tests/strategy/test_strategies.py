"""Strategies are fed trials by hand: no backend, no data."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from lpot.core.errors import ConfigError
from lpot.core.goal import Goal, Objectives
from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.strategy import PACKAGES, STRATEGIES, get_strategy
from lpot.strategy.auto import auto
from lpot.strategy.basic import basic
from lpot.strategy.conservative import conservative
from lpot.strategy.exhaustive import exhaustive
from lpot.strategy.hawq_v2 import hawq_v2
from lpot.strategy.mixed_precision import auto_mixed_precision
from lpot.strategy.mse import mse
from lpot.strategy.mse_v2 import mse_v2
from lpot.strategy.random import random
from strategy.stage import (
    BF16,
    INT8,
    KL,
    SETTLE,
    best,
    drive,
    needs,
    op,
    sensitivity,
    space,
    trials,
)


def bound(count: int) -> int:
    """Trials within 2 + log2(ops) evaluations, the baseline being one."""
    return 1 + math.ceil(math.log2(count))


class TestBasic:
    def test_stops_when_everything_in_int8_passes(self) -> None:
        assert drive(basic, space(5), lambda recipe: True) == [space(5).default()]

    @pytest.mark.parametrize("count", [2, 3, 7, 16, 33, 100])
    @pytest.mark.parametrize("guilty", [{1}, {0}, {0, 1}])
    def test_finds_the_fewest_within_the_bound(self, count: int, guilty: set[int]) -> None:
        if len(guilty) == count:
            return
        passes = needs(guilty)
        seen = drive(basic, space(count), passes, ranking=sensitivity(count, guilty))
        assert best(seen, passes) == {op(i).name for i in guilty}
        assert len(seen) <= bound(count)

    @pytest.mark.parametrize(("guilty", "most"), [({3}, 2), ({0, 7}, 3), ({1, 2, 11}, 3)])
    def test_a_clear_ranking_needs_fewer(self, guilty: set[int], most: int) -> None:
        passes = needs(guilty)
        seen = drive(basic, space(16), passes, ranking=sensitivity(16, guilty))
        assert best(seen, passes) == {op(i).name for i in guilty}
        assert len(seen) <= most

    @pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 16, 17, 64])
    def test_a_wrong_ranking_costs_no_more_than_the_bound(self, count: int) -> None:
        for guilty in range(1, count):
            passes = needs(set(range(guilty)))
            seen = drive(basic, space(count), passes, ranking=sensitivity(count, {count - 1}))
            # One more for the op ranked last, where nothing but FP32 itself would hold the bar.
            assert len(seen) <= bound(count) + (guilty == count - 1)

    @pytest.mark.parametrize("count", [2, 3, 8, 17])
    def test_an_op_ranked_last_is_found_by_a_second_look(self, count: int) -> None:
        passes = needs({count - 1})
        seen = drive(basic, space(count), passes, ranking=sensitivity(count, {0}))
        assert best(seen, passes) == {op(count - 1).name}
        assert len(seen) <= bound(count) + 1

    def test_a_second_look_that_helps_goes_on(self) -> None:
        # Two are guilty: the one ranked last, and one in the middle of a ranking that is wrong.
        ranking = {op(i): 1.0 / (i + 1) for i in range(16)}
        passes = needs({6, 15})
        graded = {op(6).name: 0.1, op(15).name: 0.3}

        def score(recipe: Recipe) -> float:
            return 0.6 + sum(graded.get(key.name, 0.0) for key in recipe.float_ops)

        seen = drive(basic, space(16), passes, score=score, ranking=lambda: ranking)
        assert {"op06", "op15"} <= best(seen, passes) and len(best(seen, passes)) < 16
        assert len(seen) <= 2 * bound(16)

    def test_without_a_ranking(self) -> None:
        passes = needs({2})
        seen = drive(basic, space(8), passes)
        assert any(map(passes, seen)) and len(seen) <= bound(8)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_harm_that_is_no_number_counts_as_the_worst(self, value: float) -> None:
        ranking = {op(i): value if i == 5 else 0.001 for i in range(8)}
        seen = drive(basic, space(8), needs({5}), ranking=lambda: ranking)
        assert best(seen, needs({5})) == {"op05"}

    def test_the_fp32_model_itself_is_no_trial(self) -> None:
        seen = drive(basic, space(4), lambda recipe: not recipe.low_ops)
        assert all(recipe.low_ops for recipe in seen)

    def test_ops_the_user_pinned_stay_low(self) -> None:
        pinned = TuningSpace({OpKey("a", "Conv"): (INT8,), OpKey("b", "Conv"): (INT8, FP32)})
        seen = drive(basic, pinned, lambda recipe: False)
        assert all(OpKey("a", "Conv") in recipe.low_ops for recipe in seen)
        assert seen[-1].float_ops == (OpKey("b", "Conv"),)

    def test_tries_each_sampling_size(self) -> None:
        seen = drive(basic, space(2, samples=(100, 200)), lambda recipe: recipe.samples == 200)
        assert [recipe.samples for recipe in seen] == [100, 200]

    def test_goes_on_with_the_better_sampling_size(self) -> None:
        where = space(4, samples=(100, 200))
        seen = drive(basic, where, needs({0}), ranking=sensitivity(4, {0}))
        assert {recipe.samples for recipe in seen[2:]} == {100}

    def test_followers_are_left_to_their_neighbours(self) -> None:
        follower = OpKey("add", "Add")
        where = TuningSpace({**space(3).choices, follower: (INT8, FP32)}, (0,), {follower})  # type: ignore[arg-type]
        seen = drive(basic, where, lambda recipe: False)
        assert all(follower in recipe.low_ops for recipe in seen)


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
        ("before", "after", "losers_go"), [(1.0, 1.1, True), (1.0, 0.5, False), (1e-3, 2e-3, False)]
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

    def test_for_accuracy_it_tries_other_ranges(self) -> None:
        where = space(2, INT8, KL, FP32)
        aim = Objectives(("accuracy",))
        seen = drive(auto, where, lambda r: True, objectives=aim, budget=True)
        # Then the most sensitive ops in float, up to half of them.
        assert seen[1:] == [Recipe({op(0): KL, op(1): KL}), Recipe({op(0): FP32, op(1): INT8})]


class TestTimeout:
    """`timeout: 0` ends a search at its first success, unless it was asked to settle."""

    PASSES = staticmethod(needs({0, 1}))
    RANKING = staticmethod(lambda: {op(i): 0.02 / (i + 1) for i in range(16)})

    def held(self, name: str, **options: object) -> list[bool]:
        where = space(16, INT8, BF16, FP32) if "mixed" in name else space(16)

        def passes(recipe: Recipe) -> bool:
            return all(recipe.ops[op(i)] == FP32 for i in (0, 1))

        return [
            trial.met
            for trial in trials(
                get_strategy(name),
                where,
                passes,
                40,
                None,
                ranking=self.RANKING,
                options=options,
                curvature=self.RANKING,
            )
        ]

    @pytest.mark.parametrize(
        "name", sorted({*STRATEGIES} - {"auto", "mixed_bits", "mse_v2", "conservative"})
    )
    def test_the_first_success_is_the_last_trial(self, name: str) -> None:
        pytest.importorskip("optuna" if name in PACKAGES else "numpy")
        if name in ("mse", "hawq_v2"):
            pytest.skip("offers its trials as one batch, of which the loop stops")
        assert self.held(name).index(True) == len(self.held(name)) - 1

    def test_asked_to_settle_it_goes_on(self) -> None:
        first, settled = self.held("basic"), self.held("basic", settle=True)
        assert settled[: len(first)] == first and len(settled) > len(first)

    def test_auto_may_be_asked_not_to(self) -> None:
        assert self.held("auto", settle=False).count(True) == 1 < self.held("auto").count(True)


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
        assert len(by_basic) > len(drive(basic, where, needs({0}), **given))


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


class TestMse:
    def test_one_more_op_each_time_until_the_bar_holds(self) -> None:
        seen = trials(mse, space(5), needs({3}), ranking=sensitivity(5, {3}))
        assert [len(t.recipe.float_ops) for t in seen][:2] == [0, 1]
        assert seen[1].met and seen[1].recipe.float_ops == (op(3),)

    def test_the_ranking_is_not_asked_for_in_vain(self) -> None:
        def ranking() -> dict[OpKey, float]:
            raise AssertionError("asked for")

        assert len(drive(mse, space(3), lambda recipe: True, ranking=ranking)) == 1

    def test_hawq_v2_goes_by_curvature(self) -> None:
        seen = trials(hawq_v2, space(5), needs({4}), curvature=sensitivity(5, {4}))
        assert seen[1].recipe.float_ops == (op(4),)


class TestMseV2:
    def test_ranks_anew_each_time_and_returns_what_was_not_needed(self) -> None:
        asked: list[int] = []

        def rest(recipe: Recipe) -> dict[OpKey, float]:
            # First op02 looks worst, then op00, then op01, which alone is needed.
            asked.append(len(recipe.float_ops))
            order = [op(2), op(0), op(1), op(3)]
            return {key: float(order.index(key)) for key in recipe.low_ops}

        passes = needs({1})
        seen = drive(mse_v2, space(4), passes, rest=rest)
        assert asked == [0, 1, 2]
        assert [len(recipe.float_ops) for recipe in seen] == [0, 1, 2, 3, 2, 1]
        assert best(seen, passes) == {"op01"}

    def test_one_that_is_needed_keeps_no_other_in_float(self) -> None:
        def rest(recipe: Recipe) -> dict[OpKey, float]:
            order = [op(2), op(0), op(3), op(1), op(4)]
            return {key: float(order.index(key)) for key in recipe.low_ops}

        passes = needs({1, 3})  # op03 is asked to return first, and misses
        assert best(drive(mse_v2, space(5), passes, rest=rest), passes) == {"op01", "op03"}

    def test_by_the_plain_ranking_where_nothing_else_is_known(self) -> None:
        seen = drive(mse_v2, space(6), needs({4}), ranking=sensitivity(6, {4}))
        assert [recipe.float_ops for recipe in seen] == [(), (op(4),)]


class TestConservative:
    def test_kinds_that_hold_stay_low(self) -> None:
        kinds = ("MatMul", "Conv", "Gemm", "Conv")
        where = TuningSpace({op(i, kind): (INT8, FP32) for i, kind in enumerate(kinds)})

        def passes(recipe: Recipe) -> bool:
            return not any(key.kind == "MatMul" for key in recipe.low_ops)

        seen = drive(conservative, where, passes)
        assert [sorted({key.kind for key in recipe.low_ops}) for recipe in seen] == [
            ["Conv"],
            ["Conv", "MatMul"],
            ["Conv", "Gemm"],
        ]

    @pytest.mark.parametrize("guilty", [{3}, {0, 5}, {1, 2, 6}])
    def test_of_a_kind_that_misses_the_harmless_ops_stay(self, guilty: set[int]) -> None:
        where, passes = space(8), needs(guilty)
        seen = drive(conservative, where, passes, ranking=sensitivity(8, guilty))
        assert best(seen, passes) == {op(number).name for number in guilty}
        assert len(seen) <= 1 + 3

    def test_where_no_op_of_a_kind_is_harmless_all_stay_in_float(self) -> None:
        seen = drive(
            conservative, space(4), lambda recipe: not recipe.low_ops, ranking=sensitivity(4, {1})
        )
        assert all(recipe.low_ops for recipe in seen) and len(seen) == 3


class TestMixedPrecision:
    def test_bf16_first_then_the_fewest_in_fp32(self) -> None:
        where = space(4, INT8, BF16, FP32)

        def passes(recipe: Recipe) -> bool:
            return recipe.ops[op(2)] == FP32

        seen = drive(auto_mixed_precision, where, passes, ranking=sensitivity(4, {2}))
        assert seen[0].precisions() == {"bf16": 4}
        assert seen[-1].precisions() == {"bf16": 3, "fp32": 1}
        assert len(seen) <= bound(4)

    def test_where_there_is_none(self) -> None:
        with pytest.raises(ConfigError, match="use basic"):
            drive(auto_mixed_precision, space(2), lambda recipe: True)


class TestLevel:
    def test_zero_is_conservative(self) -> None:
        assert get_strategy("basic", 0) is conservative
        assert get_strategy("basic", 1) is basic

    def test_auto_goes_from_the_one_to_the_other(self) -> None:
        both = get_strategy("basic", "auto")
        seen = drive(both, space(4), needs({1}), ranking=sensitivity(4, {1}))
        # Everything low, then the only kind as a whole (the same recipe), then its insensitive ops.
        assert [len(recipe.float_ops) for recipe in seen] == [0, 0, 2, 1]

    def test_auto_stops_at_the_first_that_holds(self) -> None:
        assert len(drive(get_strategy("basic", "auto"), space(4), lambda recipe: True)) == 1


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


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in PACKAGES])
def test_an_empty_space_ends(name: str) -> None:
    if "mixed" in name:
        pytest.skip("refuses a space without 16-bit floats")
    assert len(drive(get_strategy(name), TuningSpace({}), lambda recipe: False, limit=10)) <= 2


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_fp32_model_itself_is_no_answer(name: str) -> None:
    """Whatever the strategy: where only FP32 holds the bar, nothing is called a success."""
    pytest.importorskip("optuna" if name in PACKAGES else "numpy")
    follower = OpKey("add", "Add")
    options = (INT8, BF16, FP32) if "mixed" in name else (INT8, FP32)
    choices = {**space(3, *options).choices, follower: (INT8, FP32)}
    where = TuningSpace(choices, followers=frozenset({follower}))

    def passes(recipe: Recipe) -> bool:
        return all(recipe.ops[op(i)] == FP32 for i in range(3))

    seen = drive(
        get_strategy(name),
        where,
        passes,
        60,
        ranking=sensitivity(3, {1}),
        curvature=sensitivity(3, {1}),
    )
    assert seen and not any(map(passes, seen))


def test_losers_that_are_all_of_it_stay() -> None:
    gains = {op(i): -1.0 for i in range(3)}
    seen = drive(auto, space(3), lambda recipe: True, gains=lambda: gains, budget=True, latency=1.0)
    assert seen == [space(3).default()]


@pytest.mark.parametrize("name", ["basic", "auto", "mse_v2"])
def test_lower_is_better(name: str) -> None:
    """Whether the bar holds is the trial's word: the direction must not turn the search round."""
    goal = Goal(relative=0.01, higher_is_better=False)
    seen = drive(get_strategy(name), space(8), needs({3}), ranking=sensitivity(8, {3}), goal=goal)
    assert best(seen, needs({3})) == {"op03"} and len(seen) <= bound(8)


def test_names() -> None:
    assert get_strategy(basic) is basic
    assert get_strategy("sigopt") is basic
    with pytest.raises(ConfigError, match="did you mean 'basic'"):
        get_strategy("basik")


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_missing_package_is_named_before_anything_is_evaluated(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpot.strategy.find_spec", lambda package: None)
    with pytest.raises(ConfigError, match="pip install optuna"):
        get_strategy(name)
