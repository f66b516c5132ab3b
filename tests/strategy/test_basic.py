"""`basic`: all in INT8, then the fewest ops in float, by bisection over their ranking."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.strategy.basic import basic
from strategy.stage import (
    INT8,
    SETTLE,
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


class TestFirstGuess:
    """A net that loses somewhat more than it may: the loss tells about how much must come back."""

    # As a detector's: some ops stand out, and the many others add up to as much.
    NOISE = (0.065, 0.03, 0.023, *(0.006 * 0.93**i for i in range(73)))

    def drive(self, lost: float, **options: object) -> list[Recipe]:
        noise = {op(i): value for i, value in enumerate(self.NOISE)}

        def score(recipe: Recipe) -> float:
            left = sum(noise[key] for key in recipe.low_ops)
            return 1.0 - lost * left / sum(self.NOISE)

        return drive(
            basic,
            space(len(self.NOISE)),
            lambda recipe: score(recipe) >= 0.99,
            score=score,
            ranking=lambda: noise,
            options=options,
        )

    def test_few_ops_go_back_in_few_evaluations(self) -> None:
        seen = self.drive(0.02)
        assert len(seen) <= 4 and 0 < len(seen[-1].float_ops) <= 3

    def test_a_first_success_alone_is_near_as_well(self) -> None:
        seen = self.drive(0.02, settle=False)
        assert len(seen) <= 3 and 0 < len(seen[-1].float_ops) <= 6

    def test_what_is_lost_decides_how_many(self) -> None:
        counts = [len(self.drive(lost)[1].float_ops) for lost in (0.012, 0.02, 0.04, 0.2)]
        assert counts == sorted(counts) and counts[0] < 3 and counts[-1] > 15


class TestTwoRankings:
    """What labels can't see may lead a ranking; an evaluation decides which one is right."""

    RANKINGS: ClassVar[dict[str, Any]] = {
        "ranking": sensitivity(16, {1, 2, 3, 4}),
        "unshifted": sensitivity(16, {9}),
    }

    def test_the_ranking_that_labels_go_by_is_followed(self) -> None:
        seen = drive(basic, space(16), needs({9}), **self.RANKINGS)
        assert [recipe.float_ops for recipe in seen] == [(), (op(9),)]

    def test_one_that_brings_nothing_back_costs_an_evaluation(self) -> None:
        passes = needs({1, 2, 3, 4})
        seen = drive(basic, space(16), passes, options=SETTLE, **self.RANKINGS)
        assert best(seen, passes) == {"op01", "op02", "op03", "op04"}
        assert len(seen) <= bound(16)

    def test_where_they_agree_none_is_tried_twice(self) -> None:
        given = {"ranking": sensitivity(16, {9}), "options": SETTLE}
        alone = drive(basic, space(16), needs({9}), **given)
        assert drive(basic, space(16), needs({9}), unshifted=given["ranking"], **given) == alone
