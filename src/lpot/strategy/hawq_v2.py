"""Ops back to float in the order of the loss's curvature: those it bends most at go first."""

from __future__ import annotations

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.mse import cumulative, most_of_cumulative


@policy(most=most_of_cumulative, needs_curvature=True)
def hawq_v2(space: TuningSpace, context: StrategyContext) -> Proposals:
    """By the trace of each weight's Hessian, times the squared error that quantizing it makes."""
    yield from cumulative(space, context, context.curvature)
