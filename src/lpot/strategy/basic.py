"""Everything INT8 first; then the fewest of the most sensitive ops back to float."""

from __future__ import annotations

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.auto import auto, most
from lpot.strategy.fewest import fewest_float

MORE = 2  # evaluations after the first success, where several ops are in float


@policy(settles=True, most=most)
def basic(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Bisect the ranking by sensitivity: about log2(ops) evaluations instead of one per op.

    After its first success it makes two more at most; all that it takes to settle, if asked to.
    With time to spend it goes on, as `auto` does, to the best model by the objective.
    """
    if context.budget:
        yield from auto(space, context)
    else:
        more = None if context.options.get("settle") else MORE
        yield from fewest_float(space, context, more=more)
