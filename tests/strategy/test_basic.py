"""`basic`: all in INT8, then the fewest ops in float, by bisection over their ranking."""

from __future__ import annotations

import math

import pytest

from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.strategy.basic import basic
from strategy.stage import (
    INT8,
    best,
    bound,
    drive,
    needs,
    op,
    sensitivity,
    space,
)


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
            # One more for the op ranked last, where nothing but FP32 itself would meet the bar.
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
