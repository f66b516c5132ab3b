"""The fewest ops back to float: the part that `basic` is, and that others begin with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Sensitivity, Steps, StrategyContext
from lpot.core.trial import Trial
from lpot.strategy.bracket import Bracket, bearable, steps_for
from lpot.strategy.order import able, fallback_order, weight

UNNOTICED = 1 / 40  # of the ops: what their time in float is not worth another evaluation for


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
    sensitivity: Sensitivity = field(default_factory=dict)  # which the order is by

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
    space: TuningSpace,
    context: StrategyContext,
    second_look: bool = True,
    more: int | None = None,
) -> Steps[Fallbacks]:
    """Everything low; then the shortest prefix of the ops by sensitivity that meets the bar.

    With n ops that may go back it takes at most log2(n) evaluations after the first, on the
    assumption that more float never hurts. Side by side, several prefixes are tried a round, which
    finds the same one in fewer rounds. All of them back is the FP32 model itself, whose score
    is known: it is tried only where some ops may not go back. Where nothing but that would hold the
    bar the ranking was wrong, and a second look may be taken. `more`: how many evaluations may
    follow the first success, where fewer ops in float are worth them.
    """
    first = yield from default_first(space, context)
    if first.met:
        return Fallbacks(first.recipe, best=first, steps=steps_for(len(able(space))))
    sensitivity, bracket, order, known = yield from _ranked(space, context, first)
    trials = list(known.values())
    answers = _answers(space, order)
    best = known.get(bracket.high) if bracket.holds else None
    unbearable = bracket.noise[0]
    while bracket.is_open and (more is None or not _is_enough(best, order, more)):
        if best is not None and more is not None:
            more -= 1
        cuts = bracket.cuts(_threshold(bracket, known, context), context.workers)
        made = yield [space.with_float(first.recipe, order[:k]) for k in cuts]
        trials += made
        tried = dict(zip(cuts, made, strict=True))
        bracket.learn_all({k: trial.met for k, trial in tried.items()})
        known |= tried
        best = tried.get(bracket.high, best) if bracket.holds else None
        missed = [bracket.noise[k] for k, trial in tried.items() if not trial.met]
        unbearable = min([unbearable, *missed])
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
        first.recipe,
        tuple(order),
        best,
        needed,
        unbearable,
        bracket.steps,
        tuple(trials),
        sensitivity,
    )


def _ranked(
    space: TuningSpace, context: StrategyContext, first: Trial
) -> Steps[tuple[Sensitivity, Bracket, list[OpKey], dict[int, Trial]]]:
    """The sensitivity that labels go by, its order, and what is known of cuts of that.

    Where most of the error is one that class scores may not show, the ranking without it is cut
    first: it stays if that brings back half of what was lost, and costs an evaluation if not.
    """
    sensitivity, other = context.ranking(), context.unshifted()
    order = fallback_order(space, sensitivity)
    steps = steps_for(_answers(space, order))
    if other and fallback_order(space, other) != order and steps:
        order_of_other = fallback_order(space, other)
        bracket = Bracket([weight(other, key) for key in order_of_other], steps)
        cut = bracket.cut(_threshold(bracket, {0: first}, context))
        (trial,) = yield [space.with_float(first.recipe, order_of_other[:cut])]
        won = _gain(trial, context) - _gain(first, context)
        if trial.met or won > (context.goal.gain(context.baseline) - _gain(first, context)) / 2:
            bracket.learn(cut, trial.met)
            return other, bracket, order_of_other, {0: first, cut: trial}
        steps -= 1
    bracket = Bracket([weight(sensitivity, key) for key in order], steps)
    return sensitivity, bracket, order, {0: first}


def _is_enough(best: Trial | None, order: list[OpKey], more: int) -> bool:
    """Are too few ops in float for another evaluation? By number: times vary with the load."""
    return best is not None and (more == 0 or not keeps_many(best.recipe, order))


def keeps_many(recipe: Recipe, ops: Sequence[OpKey]) -> bool:
    """Are more of these ops in float than one, and than what can hardly be noticed?"""
    kept = sum(recipe.ops[key].is_float for key in ops)
    return kept > max(1.0, UNNOTICED * len(ops))


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


def _threshold(bracket: Bracket, tried: Mapping[int, Trial], context: StrategyContext) -> float:
    """What the trials, by the ops that went back, tell of the noise that can be borne."""
    goal, baseline = context.goal, context.baseline
    seen = [
        (bracket.noise[k], goal.gain(baseline) - goal.gain(trial.score.accuracy))
        for k, trial in tried.items()
        if trial.score is not None and trial.score.bounds is None
    ]
    return bearable(seen, abs(baseline - goal.bar(baseline)))
