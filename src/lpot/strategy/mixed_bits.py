"""Formats of different widths, mixed op by op: the cheapest mix that meets the bar.

Error and cost of each format are known for each op, and add up. Then the mixes worth trying lie on
one path: begin with the cheapest format everywhere, and take, again and again, the step that saves
the most error for its cost (the greedy answer to this knapsack, exact at its own points). The path
is cut by evaluations: the first where the errors say the bar holds, the next ones corrected by what
was seen, within a bracket that halves. A trial may have seen a part of the data alone: what the
search would end with is confirmed on all of it, or the search goes on. A model with phases (a
prompt, a token) must be slower than FP32 in none of them, unless size alone is asked for: what
takes too long where the bar holds costs more on the path.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, Tradeoff, Tradeoffs, policy
from lpot.core.trial import Trial
from lpot.strategy.bracket import steps_for
from lpot.strategy.fewest import fewest_float
from lpot.strategy.order import is_fp32

SIZE = 0.1  # of the bytes saved, beside time: of two equally fast formats the smaller is taken
EXTRA = 2  # evaluations besides those that halving needs
# Of FP32's time in each phase, as clocks of single ops tell it: where other programs disturb it, an
# INT8 product takes up to a fifth longer against FP32 from one minute to the next (AVX2).
NO_SLOWER = 0.92
WEIGHTS = (0.1, 0.2, 0.4, 0.8, 1.6)  # that a phase which would be slower gets besides
NEARER = 0.95  # of the loss that is aimed at once a mix has met the bar on a part of the data alone
FINE = 0.01  # of the cost, below which no further evaluation pays: clocks tell no less


@dataclass(frozen=True)
class Step:
    """One op takes its next better format."""

    key: OpKey
    config: OpConfig
    error: float  # that it saves
    adds: float  # to the cost


@dataclass(frozen=True, eq=False)
class Path:
    """The mixes in the order of falling error: the first with no step taken, then one more each."""

    start: Recipe
    steps: tuple[Step, ...]
    errors: tuple[float, ...]
    costs: tuple[float, ...]

    def recipe(self, taken: int) -> Recipe:
        return self.start.replace({step.key: step.config for step in self.steps[:taken]})

    def first_below(self, error: float) -> int:
        """The fewest steps that leave no more error than that."""
        return bisect_left([-left for left in self.errors], -error)


def most(space: TuningSpace, budget: bool) -> int | None:
    formats = sum(len(options) - 1 for options in space.choices.values())
    return EXTRA + steps_for(formats + 1)


@policy(settles=True, most=most)
def mixed_bits(space: TuningSpace, context: StrategyContext) -> Proposals:
    """The cheapest mix of formats that meets the bar; without tradeoffs, the fewest in float."""
    tradeoffs = context.tradeoffs()
    if not tradeoffs:
        yield from fewest_float(space, context)
        return
    allowed = _allowed(context)
    by_size = context.objectives.words == ("modelsize",)
    path = path_of(space, tradeoffs, True) if by_size else fair_path(space, tradeoffs, allowed)
    last = len(path.steps)
    while last and is_fp32(space, path.recipe(last)):
        last -= 1
    low, held = -1, dict[int, Trial]()  # the last that missed the bar; those that met it
    factor, aim = 1.0, allowed
    for _ in range(EXTRA + steps_for(last + 1)):
        high = min(held, default=last + 1)
        taken = min(max(path.first_below(aim / factor), low + 1), high - 1)
        (trial,) = yield [path.recipe(taken)]
        low = low if trial.met else taken
        held |= {taken: trial} if trial.met else {}
        if aim == allowed:  # from then on the factor is that of the whole data
            factor = _corrected(factor, trial, path.errors[taken], context)
        # What the whole data have shown leads to the right place at once.
        while _is_settled(path, low, held, last) or (held and aim < allowed):
            if not held:
                return
            high = min(held)
            whole = context.confirm(held.pop(high))
            if whole.met:
                return
            low, aim = high, NEARER * aim
            factor = _corrected(1.0, whole, path.errors[high], context)


def _is_settled(path: Path, low: int, held: Collection[int], last: int) -> bool:
    """Is nothing left between what missed the bar and what met it, or next to nothing?"""
    high = min(held, default=last + 1)
    return high - low <= 1 or (bool(held) and _gain(path, low, high) < FINE)


def _gain(path: Path, low: int, high: int) -> float:
    """The share of the cost that could still be saved below what meets the bar."""
    return 1 - path.costs[low + 1] / (path.costs[high] or 1.0)


def _allowed(context: StrategyContext) -> float:
    """The bar as a logarithm, which is what divergences add up to for a perplexity."""
    baseline = abs(context.baseline) or 1.0
    lost = abs(context.baseline - context.goal.bar(context.baseline))
    return max(math.log1p(lost / baseline), 1e-9)


def _corrected(factor: float, trial: Trial, error: float, context: StrategyContext) -> float:
    """How much is really lost by the unit of error; halfway to what this trial says."""
    if trial.accuracy is None or error <= 0:
        return factor
    base = abs(context.baseline) or 1.0
    lost = context.goal.gain(context.baseline) - context.goal.gain(trial.accuracy)
    if not math.isfinite(lost) or lost <= 0:
        return factor / 2
    return math.log1p(lost / base) / error


def fair_path(space: TuningSpace, tradeoffs: Tradeoffs, allowed: float) -> Path:
    """The path that is slower than FP32 in no phase where it leaves the error that is allowed.

    Without one, that on which the slow phases weigh most.
    """
    path = path_of(space, tradeoffs)
    slow = _slow_phases(path.recipe(path.first_below(allowed)), tradeoffs)
    for weight in WEIGHTS:
        if not _slow_phases(path.recipe(path.first_below(allowed)), tradeoffs):
            break
        path = path_of(space, tradeoffs, weights=dict.fromkeys(slow, weight))
    return path


def _slow_phases(recipe: Recipe, tradeoffs: Tradeoffs) -> tuple[int, ...]:
    """The phases in which the ops take longer than FP32's."""
    chosen = [
        option.phases
        for key, options in tradeoffs.items()
        for option in options
        if option.config == recipe.ops.get(key)
    ]
    totals = [sum(times) for times in zip(*chosen, strict=True)]
    return tuple(at for at, total in enumerate(totals) if total > NO_SLOWER)


def path_of(
    space: TuningSpace,
    tradeoffs: Tradeoffs,
    by_size: bool = False,
    weights: Mapping[int, float] | None = None,
) -> Path:
    """`weights` are what single phases cost besides."""
    whole = sum(max(option.size for option in options) for options in tradeoffs.values()) or 1

    def cost(option: Tradeoff) -> float:
        size = option.size / whole
        more = sum(weight * option.phases[at] for at, weight in (weights or {}).items())
        return more + (size + SIZE * option.time if by_size else option.time + SIZE * size)

    start: dict[OpKey, OpConfig] = {}
    steps: list[Step] = []
    error = spent = 0.0
    for key, options in tradeoffs.items():
        hull = lower_hull([(option.error, cost(option), option.config) for option in options])
        start[key] = hull[0][2]
        error, spent = error + hull[0][0], spent + hull[0][1]
        for (before, paid, _), (after, price, config) in pairwise(hull):
            steps.append(Step(key, config, before - after, price - paid))
    steps.sort(key=lambda step: -step.error / max(step.adds, 1e-12))
    errors, costs = [error], [spent]
    for step in steps:
        errors.append(errors[-1] - step.error)
        costs.append(costs[-1] + step.adds)
    # Rounding must not make a mix worse than the one before it.
    falling = [max(value, 0.0) for value in errors]
    return Path(space.default().replace(start), tuple(steps), tuple(falling), tuple(costs))


Point = tuple[float, float, OpConfig]


def lower_hull(points: Sequence[Point]) -> list[Point]:
    """Those that no mixture of two others beats, the cheapest (and least exact) first.

    >>> points = [(9, 1, None), (5, 4, None), (1, 2, None), (0, 9, None)]
    >>> [cost for _, cost, _ in lower_hull(points)]
    [1, 2, 9]
    """
    ordered = sorted(points, key=lambda point: (point[1], point[0]))
    hull: list[Point] = []
    for point in ordered:
        if hull and point[0] >= hull[-1][0]:
            continue
        while len(hull) > 1 and _slope(hull[-1], point) >= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(point)
    return hull


def _slope(one: Point, other: Point) -> float:
    """Error saved per cost."""
    return (one[0] - other[0]) / max(other[1] - one[1], 1e-12)
