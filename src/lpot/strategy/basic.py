"""Everything INT8 first; then the fewest of the most harmful ops back to float."""

from __future__ import annotations

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.fewest import fewest_float, most_of_fewest


@policy(settles=True, most=most_of_fewest)
def basic(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Bisect the ranking by harm: about log2(ops) evaluations instead of one per op."""
    yield from fewest_float(space, context)
