"""The fewest ops in float, and then on to the best model by the objective."""

from __future__ import annotations

from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, Steps, StrategyContext, policy
from lpot.core.trial import Trial
from lpot.strategy.belief import FEW
from lpot.strategy.fewest import Fallbacks, all_low, fewest_float, most_of_fewest
from lpot.strategy.improve import improve, is_timed
from lpot.strategy.order import able, fallback_order, is_fp32, told_apart, weight
from lpot.strategy.ranges import other_ranges
from lpot.strategy.regain import returned

LEAST_ERROR = 1e-12  # so that a gain can be divided by it
LITTLE = 1.1  # times as fast as FP32, by a quick look: ops that do not pay may be among the others


def most(space: TuningSpace, budget: bool) -> int | None:
    """With time to spend it goes on as long as something may be gained."""
    return None if budget else most_of_fewest(space, budget)


@policy(settles=True, most=most)
def auto(space: TuningSpace, context: StrategyContext) -> Proposals:
    """The fewest ops in float; then ops return in the order of time gained per error made.

    Without a budget of time it spends no more evaluations than `basic` may: what that leaves of its
    bound goes into returning ops less sensitive than what has missed the bar. With a budget it goes
    on (`improve`), then those that do not pay go back; for accuracy, other ranges are tried, and
    the most sensitive ops in float. A model that is hardly faster than FP32 has its ops that do not
    pay put back in any case. What a budget leaves in FP32 is tried as BF16 where the CPU has that.
    """
    for_accuracy = context.objectives.words == ("accuracy",)
    goes_on = context.budget and not for_accuracy
    # Of few ops all sets can be weighed: the search needs no cut of the ranking to begin with.
    if goes_on and len(able(space)) <= FEW:
        found = yield from all_low(space, context)
    else:
        found = yield from fewest_float(space, context, second_look=not goes_on)
    best: Trial | None = found.best
    if for_accuracy:
        if context.budget and best is not None:
            yield from _nearer_to_fp32(space, context, best.recipe)
        return
    if goes_on and (best is None or found.back):
        best = yield from improve(space, context, found)
    elif best is not None and found.back:
        best = yield from _return_many(context, found, best)
    if best is not None and is_timed(context) and (context.budget or _is_slow(context, best)):
        yield from _leave_losers(space, context, best)
    if best is not None and context.budget:
        yield from _in_halves(space, best)


def _in_halves(space: TuningSpace, best: Trial) -> Steps[None]:
    """The ops in FP32 as 16-bit floats instead, where the CPU has them, all together."""
    halves = {
        key: option
        for key, config in best.recipe.ops.items()
        for option in reversed(space.choices.get(key, ()))
        if config == FP32 and option.is_float and option != FP32
    }
    if halves:
        yield [best.recipe.replace(halves)]


def _is_slow(context: StrategyContext, best: Trial) -> bool:
    """Did a quick look at the clock show little gain, or none?"""
    after = None if best.score is None else best.score.latency
    return after is not None and context.latency is not None and context.latency <= LITTLE * after


def _returning(context: StrategyContext, found: Fallbacks) -> list[OpKey]:
    """The ops that may return, those with most time gained per error first."""
    sensitivity = found.sensitivity
    candidates = [
        key
        for key in found.back
        if key not in found.needed and weight(sensitivity, key) < found.unbearable
    ]
    if not candidates:
        return []
    gains = told_apart(context.gains())
    return sorted(
        candidates,
        key=lambda key: -gains.get(key, 1.0) / max(weight(sensitivity, key), LEAST_ERROR),
    )


def _return_many(context: StrategyContext, found: Fallbacks, best: Trial) -> Steps[Trial]:
    """The longest prefix of those that may return with which the bar still holds, by bisection."""
    keys = _returning(context, found)
    low, high, steps = 0, len(keys), found.steps
    # All at once first: where one op alone was to blame, that is the answer.
    middle = high
    while low < high and steps > 0:
        (trial,) = yield [returned(found.start, best.recipe, keys[:middle])]
        best = trial if trial.met else best
        low, high = (middle, high) if trial.met else (low, middle - 1)
        middle = (low + high + 1) // 2
        steps -= 1
    return best


def _leave_losers(space: TuningSpace, context: StrategyContext, best: Trial) -> Steps[None]:
    """Ops that are slower in low precision than in float go back, all together."""
    if "performance" not in context.objectives.words:
        return
    gains = told_apart(context.gains())
    losers = [key for key in best.recipe.low_ops if gains.get(key, 0.0) < 0.0]
    recipe = space.with_float(best.recipe, losers)
    if not is_fp32(space, recipe) and recipe != best.recipe:
        yield [recipe]


def _nearer_to_fp32(space: TuningSpace, context: StrategyContext, recipe: Recipe) -> Steps[None]:
    """Each other algorithm for the ranges; then the most sensitive ops in float, twice as many each
    time, up to half of those that are in low precision."""
    variants = other_ranges(space, recipe)
    order = [key for key in fallback_order(space, context.ranking()) if key in recipe.low_ops]
    count = 1
    while count <= len(order) // 2:
        variants.append(space.with_float(recipe, order[:count]))
        count *= 2
    yield [variant for variant in dict.fromkeys(variants) if variant != recipe]
