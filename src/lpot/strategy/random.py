"""Independent draws for each op, float included, from the seed alone."""

from __future__ import annotations

import random as rng

from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.exhaustive import most
from lpot.strategy.order import is_fp32


@policy(most=most)
def random(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Everything INT8 first, then draws without repetition until the space is used up."""
    draw = rng.Random(context.seed)
    leaders = {key: options for key, options in space.choices.items() if key not in space.followers}
    start = space.default()
    seen = {start.digest}
    yield [start]
    misses = 0
    while misses < 1000:
        changes = {key: draw.choice(options) for key, options in leaders.items()}
        recipe = Recipe({**start.ops, **changes}, draw.choice(space.samples), start.repairs)
        if recipe.digest in seen or is_fp32(space, recipe):
            misses += 1
            continue
        misses = 0
        seen.add(recipe.digest)
        yield [recipe]
