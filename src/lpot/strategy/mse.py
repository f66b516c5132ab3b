"""Ops back to float one after the other, the most sensitive first, until the bar holds."""

from __future__ import annotations

from collections.abc import Callable

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, Sensitivity, StrategyContext, policy
from lpot.strategy.fewest import default_first
from lpot.strategy.order import able, fallback_order, is_fp32


def most_of_cumulative(space: TuningSpace, budget: bool) -> int:
    return len(space.samples) + len(able(space))


@policy(most=most_of_cumulative)
def mse(space: TuningSpace, context: StrategyContext) -> Proposals:
    """In the order of the squared error that each op alone makes in the outputs."""
    yield from cumulative(space, context, context.ranking)


def cumulative(
    space: TuningSpace, context: StrategyContext, ranking: Callable[[], Sensitivity]
) -> Proposals:
    """Everything low first, then one op more back each time; `ranking` is asked only if needed.

    The recipes do not depend on each other's trials: they are one batch, and the loop stops it.
    """
    first = yield from default_first(space, context)
    if first.met and not context.budget:
        return
    order = fallback_order(space, ranking())
    counts = range(1, len(order) + 1)
    recipes = [space.with_float(first.recipe, order[:count]) for count in counts]
    yield [recipe for recipe in recipes if not is_fp32(space, recipe)]
