"""How many trials a search can take: never less than a real one takes."""

from __future__ import annotations

import pytest

from lpot.core.limits import Limits
from lpot.core.recipe import FP32, OpConfig, OpKey, TensorConfig
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, Strategy, StrategyContext
from lpot.core.trial import Score, State, Trial
from lpot.jobs.tune.forecast import most_trials
from lpot.strategy import PACKAGES, STRATEGIES
from lpot.strategy.basic import basic
from lpot.strategy.exhaustive import exhaustive
from lpot.strategy.random import random

INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))


def space_of(ops: int, followers: int = 0, samples: tuple[int, ...] = (0,)) -> TuningSpace:
    keys = [OpKey(f"op{index:03}", "Conv") for index in range(ops + followers)]
    choices = {key: (INT8, FP32) for key in keys}
    return TuningSpace(choices, samples, frozenset(keys[ops:]))


def real_length(space: TuningSpace, needed: int) -> int:
    """Trials of `basic` when so many ops must go back."""
    proposals = basic(space, StrategyContext())
    count, batch = 0, next(proposals, None)
    while batch:
        count += len(batch)
        floats = [len(set(recipe.float_ops) - space.followers) for recipe in batch]
        trials = [
            Trial(1, recipe, State.DONE, Score(1.0), met=back >= needed)
            for recipe, back in zip(batch, floats, strict=True)
        ]
        try:
            batch = proposals.send(trials)
        except StopIteration:
            batch = None
    return count


@pytest.mark.parametrize("ops", [1, 2, 3, 4, 7, 8, 20, 54, 100])
def test_basic_is_never_longer_than_told(ops: int) -> None:
    space = space_of(ops, followers=5)
    most = most_trials(basic, space, Limits())
    longest = max(real_length(space, needed) for needed in range(ops + 2))
    assert longest <= most <= 2 + ops.bit_length()


def test_limits_cut_it() -> None:
    space = space_of(54)
    assert most_trials(basic, space, Limits(max_trials=3)) == 3
    assert most_trials(basic, space, Limits(performance_only=True)) == 1
    assert most_trials(random, space, Limits(max_trials=17)) == 17
    assert most_trials(exhaustive, space, Limits(max_trials=17)) == 17


def test_a_small_space_ends_by_itself() -> None:
    assert most_trials(exhaustive, space_of(2), Limits()) == 3  # FP32 itself is no trial
    assert most_trials(random, space_of(2), Limits()) == 3


def test_every_number_of_samples_is_tried_first() -> None:
    one, three = (most_trials(basic, space_of(8, samples=s), Limits()) for s in ((0,), (1, 2, 3)))
    assert three == one + 2


def stuck(space: TuningSpace, context: StrategyContext) -> Proposals:
    while True:
        yield [space.default()]


def fallen(space: TuningSpace, context: StrategyContext) -> Proposals:
    raise KeyError("nothing is known here")
    yield []


def test_a_users_strategy_is_not_played() -> None:
    assert most_trials(stuck, space_of(3), Limits(max_trials=9)) == 9


@pytest.mark.parametrize("strategy", [stuck, fallen])
def test_a_play_that_goes_wrong_does_no_harm(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategy, "__module__", "lpot.strategy.odd")
    assert 1 <= most_trials(strategy, space_of(3), Limits(max_trials=9)) <= 9


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_can_be_told(name: str) -> None:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    assert 1 <= most_trials(STRATEGIES[name], space_of(6), Limits(max_trials=30)) <= 30
