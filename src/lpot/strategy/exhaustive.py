"""Every combination there is, the nearest to the most wanted one first."""

from __future__ import annotations

import math
from itertools import combinations, product

from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.order import is_fp32


def most(space: TuningSpace, budget: bool) -> int:
    """As many as there are recipes, without those that are FP32 itself."""
    leaders = [options for key, options in space.choices.items() if key not in space.followers]
    fp32 = [sum(option.precision == "fp32" for option in options) for options in leaders]
    return len(space.samples) * (math.prod(map(len, leaders)) - math.prod(fp32))


@policy(most=most)
def exhaustive(space: TuningSpace, context: StrategyContext) -> Proposals:
    """By the number of ops that leave their most wanted config: none, one, two … Never a repeat."""
    base = space.default()
    leaders = [key for key in space.choices if key not in space.followers]
    others = {key: space.choices[key][1:] for key in leaders}
    for count in range(len(leaders) + 1):
        for keys in combinations([key for key in leaders if others[key]], count):
            for configs in product(*(others[key] for key in keys)):
                ops = {**base.ops, **dict(zip(keys, configs, strict=True))}
                for samples in space.samples:
                    recipe = Recipe(ops, samples, base.repairs)
                    if not is_fp32(space, recipe):
                        yield [recipe]
