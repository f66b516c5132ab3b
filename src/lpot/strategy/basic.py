"""Everything INT8 first; then the fewest of the most sensitive ops back to float."""

from __future__ import annotations

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.auto import auto, most
from lpot.strategy.fewest import fewest_float


@policy(most=most)
def basic(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Bisect the ranking by sensitivity: about log2(ops) evaluations instead of one per op.

    With time to spend it goes on, as `auto` does, to the best model by the objective.
    """
    yield from (auto if context.budget else fewest_float)(space, context)
