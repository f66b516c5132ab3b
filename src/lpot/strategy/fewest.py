"""The fewest ops back to float: the part that `basic` is, and that others begin with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Steps, StrategyContext
from lpot.core.trial import Trial
from lpot.strategy.bracket import Bracket, bearable, steps_for
from lpot.strategy.order import able, fallback_order, weight


@dataclass(frozen=True, eq=False)
class Fallbacks:
    """The fewest ops to keep in FP32, as far as the search got; `needed` are known to be."""

    start: Recipe
    order: tuple[OpKey, ...] = ()
    best: Trial | None = None
    needed: tuple[OpKey, ...] = ()
    unbearable: float = math.inf  # the least noise with which the bar was missed
    steps: int = 0  # evaluations of the bound that were not used
    trials: tuple[Trial, ...] = ()  # those that the ranking was cut by

    @property
    def back(self) -> tuple[OpKey, ...]:
        """The ops that went back, in the order they did."""
        if self.best is None:
            return ()
        return tuple(key for key in self.order if self.best.recipe.ops[key].is_float)


def all_low(space: TuningSpace, context: StrategyContext) -> Steps[Fallbacks]:
    """Everything low, and the order in which ops would go back."""
    first = yield from default_first(space, context)
    if first.met:
        return Fallbacks(first.recipe, best=first)
    order = fallback_order(space, context.ranking())
    return Fallbacks(first.recipe, tuple(order), trials=(first,))


def fewest_float(
    space: TuningSpace, context: StrategyContext, second_look: bool = True
) -> Steps[Fallbacks]:
    """Everything low; then the shortest prefix of the ops by sensitivity that meets the bar.

    With n ops that may go back it takes at most log2(n) evaluations after the first, on the
    assumption that more float never hurts. Side by side, several prefixes are tried a round, which
    finds the same one in fewer rounds. All of them back is the FP32 model itself, whose score
    is known: it is tried only where some ops may not go back. Where nothing but that would hold the
    bar the ranking was wrong, and a second look may be taken.
    """
    first = yield from default_first(space, context)
    if first.met:
        return Fallbacks(first.recipe, best=first, steps=steps_for(len(able(space))))
    trials = [first]
    sensitivity = context.ranking()
    order = fallback_order(space, sensitivity)
    answers = _answers(space, order)
    bracket = Bracket([weight(sensitivity, key) for key in order], steps_for(answers))
    best = None
    unbearable = bracket.noise[0]
    threshold = _threshold(bracket, 0, first, context)
    while bracket.is_open:
        cuts = bracket.cuts(threshold, context.workers)
        made = yield [space.with_float(first.recipe, order[:k]) for k in cuts]
        trials += made
        tried = dict(zip(cuts, made, strict=True))
        nearest = bracket.learn_all({k: trial.met for k, trial in tried.items()})
        best = tried.get(bracket.high, best) if bracket.holds else None
        missed = [bracket.noise[k] for k, trial in tried.items() if not trial.met]
        unbearable = min([unbearable, *missed])
        threshold = _threshold(bracket, nearest, tried[nearest], context)
    if best is None and order and answers > len(order) and bracket.steps:
        (trial,) = yield [space.with_float(first.recipe, order)]
        bracket.learn(len(order), trial.met)
        best = trial if trial.met else None
    elif best is None and bracket.low == len(order) > 1 and second_look:
        best = yield from _second_look(space, context, first, order)
        return Fallbacks(first.recipe, tuple(order), best, tuple(order[-1:]), unbearable)
    settled = best is not None and bracket.low == bracket.high
    needed = (order[bracket.high - 1],) if settled else ()
    return Fallbacks(
        first.recipe, tuple(order), best, needed, unbearable, bracket.steps, tuple(trials)
    )


def most_of_fewest(space: TuningSpace, budget: bool) -> int:
    """What `fewest_float` tries at most, where the ranking is right about the op ranked last."""
    order = able(space)
    answers = _answers(space, order)
    return len(space.samples) + steps_for(answers) + (answers == len(order) > 1)


def _second_look(
    space: TuningSpace, context: StrategyContext, first: Trial, order: list[OpKey]
) -> Steps[Trial | None]:
    """The op ranked last is needed, for all others in float missed the bar: begin with that one.

    Only if it helps alone is the rest of the ranking cut once more.
    """
    *rest, blamed = order
    (trial,) = yield [space.with_float(first.recipe, [blamed])]
    if trial.met or _gain(trial, context) <= _gain(first, context):
        return trial if trial.met else None
    best: Trial | None = None
    low, high = 1, len(rest)  # all of the rest as well is FP32 itself
    while low < high:
        middle = (low + high) // 2
        (trial,) = yield [space.with_float(first.recipe, [blamed, *rest[:middle]])]
        best = trial if trial.met else best
        low, high = (low, middle) if trial.met else (middle + 1, high)
    return best


def default_first(space: TuningSpace, context: StrategyContext) -> Steps[Trial]:
    """Every op at its most wanted config, with each number of samples until one meets the bar.

    Where a runtime has several precisions of floats, it begins with the fastest form of each. The
    trial that held the bar, or the best of those with low precision in them.
    """
    start = space.default()
    best: Trial | None = None
    for samples in space.samples:
        for recipe in context.starts(Recipe(start.ops, samples, start.repairs)):
            (trial,) = yield [recipe]
            if trial.met:
                return trial
            is_better = best is None or _gain(trial, context) > _gain(best, context)
            if is_better and (recipe.low_ops or not start.low_ops):
                best = trial
    assert best is not None
    return best


def _gain(trial: Trial, context: StrategyContext) -> float:
    return float("-inf") if trial.accuracy is None else context.goal.gain(trial.accuracy)


def _answers(space: TuningSpace, order: list[OpKey]) -> int:
    """Prefixes that may be the answer. All ops back is none where that is FP32 itself."""
    all_can_go_back = len(order) == len(space.choices) - len(space.followers)
    return len(order) + (0 if all_can_go_back else 1)


def _threshold(bracket: Bracket, k: int, trial: Trial, context: StrategyContext) -> float:
    """What the last trial tells of the noise that can be borne."""
    goal, baseline = context.goal, context.baseline
    lost = None
    if trial.score is not None and trial.score.bounds is None:
        lost = goal.gain(baseline) - goal.gain(trial.score.accuracy)
    allowed = abs(baseline - goal.bar(baseline))
    return bearable(bracket.noise[k], lost, allowed)
