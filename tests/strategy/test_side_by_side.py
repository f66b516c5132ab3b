"""Several trials at a time: fewer rounds, the same answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpot.core.recipe import Recipe
from lpot.core.strategy import StrategyContext
from lpot.core.trial import Score, State, Trial
from lpot.strategy.exhaustive import exhaustive
from lpot.strategy.fewest import Fallbacks, fewest_float
from lpot.strategy.random import random
from strategy.stage import drive, needs, op, sensitivity, space


def search(count: int, answer: int, workers: int, right: bool) -> tuple[Fallbacks, int]:
    """Where the first `answer` of the ranking must go back; rounds after the first trial."""

    def ranking() -> dict[object, float]:
        # A ranking that is right knows who is guilty; another knows the order and no more.
        return {
            op(i): (1.0 if i < answer else 1e-6) if right else 1.0 / (i + 1) for i in range(count)
        }

    def holds(recipe: Recipe) -> bool:
        return all(op(i) in recipe.float_ops for i in range(answer))

    context = StrategyContext(baseline=1.0, ranking=ranking, workers=workers)  # type: ignore[arg-type]
    steps = fewest_float(space(count), context)
    batch, rounds, number = next(steps), -1, 0
    while True:
        rounds += 1
        made = []
        for recipe in batch:
            number += 1
            met = holds(recipe)
            made.append(Trial(number, recipe, State.DONE, Score(1.0 if met else 0.5), met))
        assert len(batch) <= max(1, workers)
        try:
            batch = steps.send(made)
        except StopIteration as end:
            return end.value, rounds


@given(st.data())
def test_the_same_answer_in_no_more_rounds(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 70))
    answer = data.draw(st.integers(1, count - 1))
    workers = data.draw(st.sampled_from([2, 3, 4, 8]))
    right = data.draw(st.booleans())
    alone, rounds_alone = search(count, answer, 1, right)
    many, rounds = search(count, answer, workers, right)
    assert many.best is not None and len(many.back) == answer
    # Alone, a sure guess that was wrong may leave one that is not the shortest.
    assert many.back == alone.back or len(alone.back) > answer
    assert rounds <= math.ceil(math.log2(count))
    assert right or rounds <= max(rounds_alone, math.ceil(math.log(count, workers)) + 1)


@pytest.mark.parametrize("strategy", [exhaustive, random])
def test_recipes_that_do_not_depend_on_each_other_come_in_batches(strategy: object) -> None:
    where, passes = space(4), needs({0, 1, 2, 3})
    alone = drive(strategy, where, passes, ranking=sensitivity(4, {0}))  # type: ignore[arg-type]
    context = StrategyContext(baseline=1.0, ranking=sensitivity(4, {0}), workers=4)
    steps = strategy(where, context)  # type: ignore[operator]
    batch, sizes, seen = next(steps), [], []
    while batch:
        sizes.append(len(batch))
        seen += batch
        made = [Trial(1, recipe, State.DONE, Score(0.5), False) for recipe in batch]
        try:
            batch = steps.send(made)
        except StopIteration:
            break
    assert {recipe.digest for recipe in seen} == {recipe.digest for recipe in alone}
    assert max(sizes) == 4 and len(sizes) < len(alone)
