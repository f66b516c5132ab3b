"""Strategies that go op by op, or kind by kind: mse, mse_v2, hawq_v2, conservative, mixed."""

from __future__ import annotations

import pytest

from lpot.core.errors import ConfigError
from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.strategy import get_strategy
from lpot.strategy.basic import basic
from lpot.strategy.conservative import conservative
from lpot.strategy.mixed_precision import auto_mixed_precision
from lpot.strategy.mse import mse
from lpot.strategy.mse_v2 import hawq_v2, mse_v2
from strategy.stage import (
    BF16,
    INT8,
    best,
    bound,
    drive,
    needs,
    op,
    sensitivity,
    space,
    trials,
)


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
