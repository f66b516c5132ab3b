"""Independent draws for each op, float included, from the seed alone."""

from __future__ import annotations

import random as rng
from collections.abc import Iterator

from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.batches import side_by_side
from lpot.strategy.exhaustive import most
from lpot.strategy.order import is_fp32
from lpot.strategy.prior import draw_config, float_chances, ranked_first


@policy(most=most)
def random(space: TuningSpace, context: StrategyContext) -> Proposals:
    """What `basic` tries, then draws without repetition until the space is used up.

    The more sensitive an op is, the likelier it is drawn in float.
    """
    begun = yield from ranked_first(space, context)
    seen = {trial.recipe.digest for trial in begun}
    yield from side_by_side(_draws(space, context, seen), context)


def _draws(space: TuningSpace, context: StrategyContext, seen: set[str]) -> Iterator[Recipe]:
    draw = rng.Random(context.seed)
    leaders = {key: options for key, options in space.choices.items() if key not in space.followers}
    chances = float_chances(space, context)
    start = space.default()
    misses = 0
    while misses < 1000:
        changes = {
            key: draw_config(key, options, chances, draw) for key, options in leaders.items()
        }
        recipe = Recipe({**start.ops, **changes}, draw.choice(space.samples), start.repairs)
        if recipe.digest in seen or is_fp32(space, recipe):
            misses += 1
            continue
        misses = 0
        seen.add(recipe.digest)
        yield recipe
