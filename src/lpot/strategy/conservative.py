"""From FP32 towards INT8, one kind of op after the other, as long as the bar holds."""

from __future__ import annotations

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.order import able

# Words in a kind's name, those that do most of the arithmetic first.
FIRST = ("conv", "matmul", "bmm", "gemm", "linear")


def most(space: TuningSpace, budget: bool) -> int:
    return len(kinds(space))


@policy(settles=True, most=most)
def conservative(space: TuningSpace, context: StrategyContext) -> Proposals:
    """A kind whose ops are low and the bar still holds stays; another goes back. Level O0.

    It needs no success with everything in INT8, and at most one evaluation per kind.
    """
    kept = floating(space)
    for kind in kinds(space):
        keys = [key for key in able(space) if key.kind == kind]
        low = {key: space.choices[key][0] for key in keys}
        (trial,) = yield [kept.replace(low)]
        kept = trial.recipe if trial.met else kept


def floating(space: TuningSpace) -> Recipe:
    """Every op in float that may be; the followers fall in with their neighbours."""
    return space.with_float(space.default(), able(space))


def kinds(space: TuningSpace) -> list[str]:
    found: dict[str, OpKey] = {}
    for key in able(space):
        found.setdefault(key.kind, key)
    return sorted(found, key=_place)


def _place(kind: str) -> int:
    lowered = kind.lower()
    return next((place for place, word in enumerate(FIRST) if word in lowered), len(FIRST))
