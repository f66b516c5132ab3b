"""What a strategy is: a generator that yields batches of recipes and receives their trials."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lpot.core.goal import Goal, Objectives
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.trial import Trial

Answer = TypeVar("Answer")
Sensitivity = Mapping[OpKey, float]  # larger is worse

# A part of a strategy, to be used by `answer = yield from part(…)`.
Steps = Generator[Sequence[Recipe], Sequence[Trial], Answer]
Proposals = Steps[None]


def _unknown(recipe: Recipe) -> Sensitivity:
    return {}


def _itself(recipe: Recipe) -> Sequence[Recipe]:
    return (recipe,)


def _as_it_is(trial: Trial) -> Trial:
    return trial


@dataclass(frozen=True)
class Tradeoff:
    """What one config of an op means: error of the outputs, time and bytes."""

    config: OpConfig
    error: float
    time: float  # as a share of the model's
    size: int
    phases: tuple[float, ...] = ()  # the same in each phase, where a model has several


Tradeoffs = Mapping[OpKey, Sequence[Tradeoff]]


@dataclass(frozen=True, eq=False)
class StrategyContext:
    """All that a strategy may know besides the space. Its randomness comes from `seed` alone.

    What is known of ops is found without labels or evaluations, when first asked for; where nothing
    can be known it is empty.
    """

    seed: int = 1978
    goal: Goal = field(default_factory=lambda: Goal(relative=0.01))
    baseline: float = 0.0
    latency: float | None = None  # seconds a batch in FP32, where that was measured
    starts: Callable[[Recipe], Sequence[Recipe]] = _itself  # of a recipe, the fastest first
    ranking: Callable[[], Sensitivity] = dict  # sensitivity by op, each alone in low precision
    unshifted: Callable[[], Sensitivity] = dict  # the same without what no class score shows
    options: Mapping[str, Any] = field(default_factory=dict)  # the rest of tuning.strategy
    rest: Callable[[Recipe], Sensitivity] = _unknown  # what remains with one more op in float
    curvature: Callable[[], Sensitivity] = dict  # second derivatives of the loss, times the error
    gains: Callable[[], Mapping[OpKey, float]] = dict  # time an op saves in low precision
    objectives: Objectives = field(default_factory=Objectives)
    tradeoffs: Callable[[], Tradeoffs] = dict  # each config of each op, where that is known
    confirm: Callable[[Trial], Trial] = _as_it_is  # a trial that was raced out, on everything
    forget: Callable[[Callable[[Recipe], bool]], None] = lambda which: None  # earlier scores
    budget: bool = False  # time was given to go on after the first recipe that meets the bar
    workers: int = 1  # trials that are made side by side: batches of so many cost no more time


Strategy = Callable[[TuningSpace, StrategyContext], Proposals]
Bound = Callable[[TuningSpace, bool], int | None]  # (space, budget) → the most trials it proposes


def _no_bound(space: TuningSpace, budget: bool) -> None:
    return None


@dataclass(frozen=True, eq=False)
class Policy:
    """A strategy with what must be known of it before it runs. It is called as the strategy is.

    `settles`: it consists in going on after its first success, and ends by itself.
    `needs_curvature`: of the loss, which not every backend can compute.
    `check`: refuses a space in which there is nothing for it to do, before anything is evaluated.
    """

    propose: Strategy
    settles: bool = False
    most: Bound = _no_bound
    needs_curvature: bool = False
    check: Callable[[TuningSpace], None] = lambda space: None

    def __call__(self, space: TuningSpace, context: StrategyContext) -> Proposals:
        return self.propose(space, context)

    def goes_on(self, asked: bool | None) -> bool:
        """Does it go on after its first success although no time was given for that?

        The one rule: `timeout: 0` ends a search at the first recipe that meets the bar, unless the
        strategy is asked to settle, by `strategy.settle` or by the name of one that consists in it.
        """
        return self.settles if asked is None else asked


def policy(
    *,
    settles: bool = False,
    most: Bound = _no_bound,
    needs_curvature: bool = False,
    check: Callable[[TuningSpace], None] = lambda space: None,
) -> Callable[[Strategy], Policy]:
    """Decorate a generator function with what must be known of it."""
    return lambda propose: Policy(propose, settles, most, needs_curvature, check)
