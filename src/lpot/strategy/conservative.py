"""From FP32 towards INT8, one kind of op after the other, as long as the bar holds."""

from __future__ import annotations

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, Steps, StrategyContext, policy
from lpot.strategy.bracket import steps_for
from lpot.strategy.order import able, weight

# Words in a kind's name, those that do most of the arithmetic first.
FIRST = ("conv", "matmul", "bmm", "gemm", "linear")


def most(space: TuningSpace, budget: bool) -> int:
    return sum(1 + steps_for(len(keys)) for keys in kinds(space).values())


@policy(settles=True, most=most)
def conservative(space: TuningSpace, context: StrategyContext) -> Proposals:
    """A kind whose ops are low and the bar still holds stays; of another the insensitive ops stay.

    It needs no success with everything in INT8. Level O0.
    """
    kept = floating(space)
    for keys in kinds(space).values():
        (trial,) = yield [_low(space, kept, keys)]
        kept = trial.recipe if trial.met else (yield from _insensitive(space, context, kept, keys))


def _insensitive(
    space: TuningSpace, context: StrategyContext, kept: Recipe, keys: list[OpKey]
) -> Steps[Recipe]:
    """The longest beginning of the ops, the least sensitive first, with which the bar holds."""
    sensitivity = context.ranking()
    order = sorted(keys, key=lambda key: weight(sensitivity, key))
    low, high, found = 0, len(order) - 1, kept
    while low < high:
        middle = (low + high + 1) // 2
        (trial,) = yield [_low(space, kept, order[:middle])]
        found = trial.recipe if trial.met else found
        low, high = (middle, high) if trial.met else (low, middle - 1)
    return found


def _low(space: TuningSpace, kept: Recipe, keys: list[OpKey]) -> Recipe:
    return kept.replace({key: space.choices[key][0] for key in keys})


def floating(space: TuningSpace) -> Recipe:
    """Every op in float that may be; the followers fall in with their neighbours."""
    return space.with_float(space.default(), able(space))


def kinds(space: TuningSpace) -> dict[str, list[OpKey]]:
    """The ops by kind, the kinds that do most of the arithmetic first."""
    found: dict[str, list[OpKey]] = {}
    for key in able(space):
        found.setdefault(key.kind, []).append(key)
    return dict(sorted(found.items(), key=lambda item: _place(item[0])))


def _place(kind: str) -> int:
    lowered = kind.lower()
    return next((place for place, word in enumerate(FIRST) if word in lowered), len(FIRST))
