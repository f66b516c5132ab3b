"""`basic`, and then on to the best model by the objective: what went back is returned to INT8."""

from __future__ import annotations

from dataclasses import replace

from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, Steps, StrategyContext, policy
from lpot.core.trial import Trial
from lpot.strategy.bracket import steps_for
from lpot.strategy.fewest import Found, fewest_float, most_of_fewest
from lpot.strategy.order import is_fp32, weight

LEAST_HARM = 1e-12  # so that a gain can be divided by it
WORTH_A_LOOK = 5e-3  # seconds a batch in FP32; below, calling kernels costs more than they do


def most(space: TuningSpace, budget: bool) -> int | None:
    """With time to spend it goes on as long as something may be gained."""
    return None if budget else most_of_fewest(space, budget)


@policy(settles=True, most=most)
def auto(space: TuningSpace, context: StrategyContext) -> Proposals:
    """The fewest ops in float; then ops return in the order of time gained per harm done.

    Without a budget of time it spends no more evaluations than `basic` may: what that leaves of its
    bound goes into returning ops whose harm is below what has missed the bar. With a budget it goes
    on: ops one by one, then those that do not pay go back; for accuracy, other ranges are tried. A
    model that is no faster than FP32 has its ops that do not pay put back in any case.
    """
    found = yield from fewest_float(space, context)
    if found.best is None:
        return
    if context.objectives.words == ("accuracy",):
        if context.budget:
            yield from _other_ranges(space, found.best.recipe)
        return
    best = found.best
    if found.back:
        best = yield from _return_many(space, context, found)
    if context.budget:
        best = yield from _return_singly(space, context, replace(found, best=best))
    if context.budget or _is_slow(context, best):
        yield from _leave_losers(space, context, best)


def _is_slow(context: StrategyContext, best: Trial) -> bool:
    """Did a quick look at the clock show no gain at all?"""
    before, after = context.latency, None if best.score is None else best.score.latency
    return before is not None and after is not None and WORTH_A_LOOK < before <= after


def _returning(context: StrategyContext, found: Found) -> list[OpKey]:
    """The ops that may return, those with most time gained per harm first."""
    candidates = [key for key in found.back if key not in found.needed]
    if not candidates:
        return []
    gains, harm = context.gains(), context.ranking()
    if not context.budget:
        candidates = [key for key in candidates if weight(harm, key) < found.unbearable]
    known = max(gains.values(), default=1.0)
    return sorted(
        candidates,
        key=lambda key: -gains.get(key, known) / max(weight(harm, key), LEAST_HARM),
    )


def _return_many(space: TuningSpace, context: StrategyContext, found: Found) -> Steps[Trial]:
    """The longest prefix of those that may return with which the bar still holds, by bisection."""
    best = found.best
    assert best is not None
    keys = _returning(context, found)
    low, high = 0, len(keys)
    steps = steps_for(high + 1) if context.budget else found.steps
    # All at once first: where one op alone was to blame, that is the answer.
    middle = high
    while low < high and steps > 0:
        (trial,) = yield [_returned(found, best.recipe, keys[:middle])]
        best = trial if trial.met else best
        low, high = (middle, high) if trial.met else (low, middle - 1)
        middle = (low + high + 1) // 2
        steps -= 1
    return best


def _return_singly(space: TuningSpace, context: StrategyContext, found: Found) -> Steps[Trial]:
    best = found.best
    assert best is not None
    for key in _returning(context, found):
        (trial,) = yield [_returned(found, best.recipe, [key])]
        best = trial if trial.met else best
    return best


def _returned(found: Found, recipe: Recipe, keys: list[OpKey]) -> Recipe:
    return recipe.replace({key: found.start.ops[key] for key in keys})


def _leave_losers(space: TuningSpace, context: StrategyContext, best: Trial) -> Steps[None]:
    """Ops that are slower in low precision than in float go back, all together."""
    gains = context.gains()
    losers = [key for key in best.recipe.low_ops if gains.get(key, 0.0) < 0.0]
    recipe = space.with_float(best.recipe, losers)
    if is_fp32(space, recipe) or recipe == best.recipe:
        return
    if "performance" in context.objectives.words:
        yield [recipe]


def _other_ranges(space: TuningSpace, recipe: Recipe) -> Steps[None]:
    """The same precisions with each other algorithm for the range of activations."""
    algorithms = dict.fromkeys(
        option.activation.algorithm
        for options in space.choices.values()
        for option in options
        if not option.is_float and option.activation.algorithm is not None
    )
    variants = [_with_algorithm(space, recipe, word) for word in algorithms]
    yield [variant for variant in dict.fromkeys(variants) if variant != recipe]


def _with_algorithm(space: TuningSpace, recipe: Recipe, algorithm: str) -> Recipe:
    changes: dict[OpKey, OpConfig] = {}
    for key in recipe.low_ops:
        wanted = replace(recipe.ops[key].activation, algorithm=algorithm)
        config = replace(recipe.ops[key], activation=wanted)
        if config in space.choices[key]:
            changes[key] = config
    return recipe.replace(changes)
