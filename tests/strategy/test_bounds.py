"""What a strategy says it takes at most is never less than a run of it takes."""

from __future__ import annotations

import pytest

from lpot.core.limits import Limits
from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Policy, Proposals, StrategyContext
from lpot.strategy import PACKAGES, STRATEGIES, get_strategy
from lpot.strategy.basic import basic
from strategy.stage import BF16, INT8, drive, op, space

FOLLOWER = OpKey("add", "Add")


def spaces(mixed: bool) -> list[TuningSpace]:
    """Of several sizes; with a follower, several kinds and sampling sizes, and an op pinned low."""
    options = (BF16, FP32) if mixed else (INT8, FP32)
    plain = [space(count, *options) for count in (1, 2, 3, 5, 8)]
    kinds = {op(n, "Conv" if n % 2 else "MatMul"): options for n in range(6)}
    pinned = {**kinds, OpKey("pinned", "Conv"): options[:1]}
    return [
        *plain,
        TuningSpace({**kinds, FOLLOWER: options}, (10, 20), frozenset({FOLLOWER})),
        TuningSpace(pinned),
    ]


def longest(policy: Policy, where: TuningSpace) -> int:
    """The most recipes of a run in which so many ops, from none to all, must be in float."""

    def run(needed: int) -> int:
        def passes(recipe: Recipe) -> bool:
            return len(set(recipe.float_ops) - where.followers) >= needed

        return len({recipe.digest for recipe in drive(policy, where, passes, limit=400)})

    return max(run(needed) for needed in range(len(where.choices) + 2))


@pytest.mark.parametrize("level", [1, "auto"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_no_run_is_longer_than_told(name: str, level: object) -> None:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    policy = get_strategy(name, level)  # type: ignore[arg-type]
    for where in spaces(mixed="mixed" in name):
        most = policy.most(where, False)
        assert most is None or longest(policy, where) <= most


@pytest.mark.parametrize("ops", [1, 2, 3, 4, 7, 8, 20, 54, 100])
def test_basic_takes_log2_of_the_ops(ops: int) -> None:
    most = basic.most(space(ops), False)
    assert most is not None and longest(basic, space(ops)) <= most <= 2 + ops.bit_length()


def test_every_sampling_size_is_one_more() -> None:
    one, three = (basic.most(space(8, samples=sizes), False) for sizes in ((0,), (1, 2, 3)))
    assert one is not None and three == one + 2


def test_a_small_space_is_told_exactly() -> None:
    for name in ("exhaustive", "random"):
        assert STRATEGIES[name].most(space(2), False) == 3  # FP32 itself is no trial


def stuck(space: TuningSpace, context: StrategyContext) -> Proposals:
    while True:
        yield [space.default()]


def test_limits_cut_it() -> None:
    assert Limits(max_trials=9).most_trials(get_strategy(stuck).most(space(3), False)) == 9
    assert Limits(max_trials=3).most_trials(8) == 3
    assert Limits(max_trials=30).most_trials(8) == 8
    assert Limits(performance_only=True).most_trials(8) == 1
