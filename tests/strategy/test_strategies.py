"""Strategies are fed trials by hand: no backend, no data."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from lpot.core.errors import ConfigError, NotAvailableYet
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.space import TuningSpace
from lpot.core.strategy import Strategy, StrategyContext
from lpot.core.trial import Score, State, Trial
from lpot.strategy import STRATEGIES, get_strategy
from lpot.strategy.basic import basic
from lpot.strategy.exhaustive import exhaustive
from lpot.strategy.random import random

INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))
KL = OpConfig(TensorConfig("uint8", "asym", algorithm="kl"), TensorConfig("int8", "sym"))


def space(count: int, *options: OpConfig, samples: tuple[int, ...] = (0,)) -> TuningSpace:
    choices = options or (INT8, FP32)
    return TuningSpace({OpKey(f"op{i:02}", "Conv"): choices for i in range(count)}, samples)


def drive(
    strategy: Strategy,
    where: TuningSpace,
    passes: Callable[[Recipe], bool],
    limit: int = 1000,
    **context: object,
) -> list[Recipe]:
    """Run a strategy to its end; the recipes it proposed, in order."""
    proposals = strategy(where, StrategyContext(**context))  # type: ignore[arg-type]
    seen: list[Recipe] = []
    batch = next(proposals, None)
    while batch and len(seen) < limit:
        trials = [
            Trial(len(seen) + n, r, State.DONE, Score(0.0), met=passes(r))
            for n, r in enumerate(batch, 1)
        ]
        seen += batch
        try:
            batch = proposals.send(trials)
        except StopIteration:
            break
    return seen


def harm(count: int, guilty: set[int]) -> Callable[[], dict[OpKey, float]]:
    return lambda: {
        OpKey(f"op{i:02}", "Conv"): 10.0 if i in guilty else 0.1 / (i + 1) for i in range(count)
    }


class TestBasic:
    def test_stops_when_everything_in_int8_passes(self) -> None:
        assert drive(basic, space(5), lambda recipe: True) == [space(5).default()]

    @pytest.mark.parametrize("guilty", [{3}, {0, 7}, {1, 2, 3, 11}, set(range(16))])
    def test_finds_the_fewest_within_log2_evaluations(self, guilty: set[int]) -> None:
        names = {f"op{i:02}" for i in guilty}

        def passes(recipe: Recipe) -> bool:
            return names <= {key.name for key in recipe.float_ops}

        seen = drive(basic, space(16), passes, ranking=harm(16, guilty))
        best = min((r for r in seen if passes(r)), key=lambda r: len(r.float_ops))
        assert {key.name for key in best.float_ops} == names
        assert len(seen) <= 1 + math.ceil(math.log2(16)) + 1

    def test_tries_everything_in_float_when_nothing_less_passes(self) -> None:
        seen = drive(basic, space(4), lambda recipe: len(recipe.low_ops) == 0)
        assert not seen[-1].low_ops

    def test_ops_the_user_pinned_stay_low(self) -> None:
        pinned = TuningSpace({OpKey("a", "Conv"): (INT8,), OpKey("b", "Conv"): (INT8, FP32)})
        seen = drive(basic, pinned, lambda recipe: False)
        assert all(OpKey("a", "Conv") in recipe.low_ops for recipe in seen)

    def test_tries_each_sampling_size(self) -> None:
        seen = drive(basic, space(2, samples=(100, 200)), lambda recipe: recipe.samples == 200)
        assert [recipe.samples for recipe in seen] == [100, 200]

    def test_one_op(self) -> None:
        seen = drive(basic, space(1), lambda recipe: bool(recipe.float_ops))
        assert [len(recipe.float_ops) for recipe in seen] == [0, 1]


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
        assert len({recipe.digest for recipe in seen}) == len(seen) == 8


class TestExhaustive:
    def test_covers_the_whole_space_once(self) -> None:
        seen = drive(exhaustive, space(3, INT8, KL, FP32, samples=(10, 20)), lambda recipe: False)
        assert len({recipe.digest for recipe in seen}) == len(seen) == 3**3 * 2

    def test_most_wanted_first(self) -> None:
        seen = drive(exhaustive, space(3), lambda recipe: False)
        assert [len(recipe.float_ops) for recipe in seen] == [0, 1, 1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_empty_space_ends(name: str) -> None:
    assert len(drive(get_strategy(name), TuningSpace({}), lambda recipe: False, limit=10)) <= 2


def test_names() -> None:
    assert get_strategy(basic) is basic
    with pytest.raises(ConfigError, match="did you mean 'basic'"):
        get_strategy("basik")
    with pytest.raises(NotAvailableYet, match="mse"):
        get_strategy("mse")
