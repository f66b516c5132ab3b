"""Every combination there is, the nearest to the most wanted one first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product

from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.batches import side_by_side
from lpot.strategy.order import is_fp32, weight
from lpot.strategy.prior import ranked_first


def most(space: TuningSpace, budget: bool) -> int:
    """As many as there are recipes, without those that are FP32 itself."""
    leaders = [options for key, options in space.choices.items() if key not in space.followers]
    fp32 = [sum(option.precision == "fp32" for option in options) for options in leaders]
    return len(space.samples) * (math.prod(map(len, leaders)) - math.prod(fp32))


@policy(most=most)
def exhaustive(space: TuningSpace, context: StrategyContext) -> Proposals:
    """What `basic` tries; then by the number of ops that leave their most wanted config.

    None, one, two …, the most sensitive ops first, and float before other ranges. Never a repeat.
    """
    begun = yield from ranked_first(space, context)
    seen = {trial.recipe.digest for trial in begun}
    fresh = (
        recipe
        for recipe in _all(space, context)
        if recipe.digest not in seen and not is_fp32(space, recipe)
    )
    yield from side_by_side(fresh, context)


def _all(space: TuningSpace, context: StrategyContext) -> Iterator[Recipe]:
    base, sensitivity = space.default(), context.ranking()
    leaders = [key for key in space.choices if key not in space.followers]
    leaders.sort(key=lambda key: -weight(sensitivity, key))
    others = {
        key: sorted(space.choices[key][1:], key=lambda option: not option.is_float)
        for key in leaders
    }
    for count in range(len(leaders) + 1):
        for keys in combinations([key for key in leaders if others[key]], count):
            for configs in product(*(others[key] for key in keys)):
                ops = {**base.ops, **dict(zip(keys, configs, strict=True))}
                for samples in space.samples:
                    yield Recipe(ops, samples, base.repairs)
