"""The worst op back to float, again and again, each time ranked anew; then back to INT8."""

from __future__ import annotations

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, policy
from lpot.strategy.fewest import default_first
from lpot.strategy.mse import cumulative, most_of_cumulative
from lpot.strategy.order import able, fallback_order, is_fp32, weight
from lpot.strategy.regain import return_singly


def most(space: TuningSpace, budget: bool) -> int:
    """Every op goes back, and all but the last may return."""
    return len(space.samples) + 2 * len(able(space))


@policy(settles=True, most=most)
def mse_v2(space: TuningSpace, context: StrategyContext) -> Proposals:
    """One op a trial goes back, the one whose return leaves the outputs nearest to FP32.

    When the bar holds, every op that is not needed returns to INT8, the least sensitive first.
    """
    trial = yield from default_first(space, context)
    start = trial.recipe
    back: list[OpKey] = []
    left = fallback_order(space, {})
    while left and not trial.met:
        key = _worst(trial.recipe, left, context)
        left.remove(key)
        back.append(key)
        recipe = space.with_float(start, back)
        if is_fp32(space, recipe):
            return
        (trial,) = yield [recipe]
    if trial.met:
        # Those kept in float last are the least sensitive; the very last is known to be needed.
        yield from return_singly(start, trial, back[-2::-1])


def _worst(recipe: Recipe, left: list[OpKey], context: StrategyContext) -> OpKey:
    """The op that helps most by going back; by the plain ranking where that can't be told."""
    rest = context.rest(recipe)
    if rest:
        return min(left, key=lambda key: weight(rest, key) if key in rest else float("inf"))
    ranking = context.ranking()
    return max(left, key=lambda key: weight(ranking, key))


# -- Ops back to float in the order of the loss's curvature: those it bends most at go first.


@policy(most=most_of_cumulative, needs_curvature=True)
def hawq_v2(space: TuningSpace, context: StrategyContext) -> Proposals:
    """By the trace of each weight's Hessian, times the squared error that quantizing it makes."""
    yield from cumulative(space, context, context.curvature)
