"""Ops back to float in the order of the loss's curvature: those it bends most at go first."""

from __future__ import annotations

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext
from lpot.strategy.mse import cumulative


def hawq_v2(space: TuningSpace, context: StrategyContext) -> Proposals:
    """By the trace of each weight's Hessian, times the squared error that quantizing it makes."""
    yield from cumulative(space, context, context.curvature)


hawq_v2.needs = "curvature"  # type: ignore[attr-defined]  # a verb that not every backend has
