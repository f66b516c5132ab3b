"""The loop. A strategy proposes recipes; each is recalled or built and scored; the best is kept.

Everything else in lpot is a noun used here. A broad `except` stands in one place, `guarded`: one
bad recipe must not end the search.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lpot.core.backend import Backend, Observations
from lpot.core.errors import EvaluationError, LpotError, WorkspaceError
from lpot.core.evaluate import Evaluator
from lpot.core.goal import Goal, Objective, cost
from lpot.core.history import History
from lpot.core.limits import Watch
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.race import Race
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Strategy, StrategyContext
from lpot.core.trial import Score, State, Trial

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
ALIKE = 0.15  # latencies of trials, looked at one after the other on a busy machine

Attempt = Callable[[Recipe], Trial]
Executor = Callable[[Attempt, Iterable[Recipe]], Iterable[Trial]]


def serial(attempt: Attempt, recipes: Iterable[Recipe]) -> Iterator[Trial]:
    """One after the other, in this process; the other executors keep this signature."""
    yield from map(attempt, recipes)


@dataclass(frozen=True, eq=False)
class Task:
    """All that a tuning needs, assembled by `jobs/quantize.py`."""

    backend: Backend
    model: Model
    space: TuningSpace
    strategy: Strategy
    evaluate: Evaluator
    goal: Goal
    observe: Callable[[int], Observations | None]  # statistics for so many samples, gathered once
    history: History
    watch: Watch
    objective: Objective = "performance"
    measure: Callable[[Model], float | None] = lambda model: None  # seconds a batch
    keep: Callable[[Trial, Model], None] = lambda trial, model: None  # put the best so far on disk
    rank: Callable[[], dict[OpKey, float]] = dict
    executor: Executor = serial
    listener: Listener = field(default_factory=Listener)
    seed: int = 1978


@dataclass(frozen=True)
class Outcome:
    baseline: Score
    best: Trial | None
    trials: tuple[Trial, ...]
    stopped: str


def tune(task: Task) -> Outcome:
    """Run the strategy to its end, or until a limit is reached."""
    baseline = task.history.baseline or score_baseline(task)
    task.goal.check_baseline(baseline.accuracy)
    task.listener.baseline(baseline, task.goal)
    context = StrategyContext(task.seed, task.goal, baseline.accuracy, task.rank)
    search = _Search(task, baseline)
    proposals = task.strategy(task.space, context)
    batch = next(proposals, None)
    while batch:
        trials = list(task.executor(search.attempt, search.allowed(batch)))
        if search.stopped or len(trials) < len(batch):
            proposals.close()
            break
        try:
            batch = proposals.send(trials)
        except StopIteration:
            break
    search.score_best_in_full()
    stopped = search.stopped or "the strategy has nothing more to try"
    return Outcome(baseline, search.best, tuple(search.tried.values()), stopped)


def score_baseline(task: Task) -> Score:
    task.listener.phase("evaluating FP32")
    score = guarded(lambda: task.evaluate(task.model))
    if isinstance(score, LpotError) and not isinstance(score, EvaluationError):
        raise score
    if isinstance(score, Exception):
        raised = f"{task.evaluate.name} raised {type(score).__name__}: "
        said = "" if isinstance(score, EvaluationError) else raised
        raise EvaluationError(f"on the FP32 baseline: {said}{score}") from score
    score = replace(score, latency=task.measure(task.model), size=task.model.nbytes)
    task.model.close()
    task.history.record_baseline(score, task.evaluate.identity)
    return score


class _Search:
    """What has been tried so far in this run, and the best of it."""

    def __init__(self, task: Task, baseline: Score) -> None:
        self.task = task
        self.baseline = baseline
        self.tried: dict[str, Trial] = {}
        self.best: Trial | None = None
        self.stopped = ""
        self.failures = 0  # in a row
        self.repeats = 0  # in a row: a strategy that proposes nothing new must end, too

    def allowed(self, batch: Sequence[Recipe]) -> Iterator[Recipe]:
        """The recipes of a batch, as long as no limit is reached."""
        for recipe in batch:
            self.stopped = self._over() or ""
            if self.stopped:
                return
            yield recipe

    def _over(self) -> str | None:
        met = self.best is not None and self.best.met
        # A strategy that settles ends by itself shortly after its first success.
        first_is_enough = met and not getattr(self.task.strategy, "settles", False)
        if self.repeats >= 1000:
            return "the strategy repeats itself"
        return self.task.watch.over(len(self.tried), self.failures, first_is_enough)

    def attempt(self, recipe: Recipe) -> Trial:
        """Recall or try one recipe, and write down what came of it."""
        if recipe.digest in self.tried:
            self.repeats += 1
            return self.tried[recipe.digest]
        self.repeats = 0
        known = self.task.history.recall(recipe)
        if known is not None and known.accuracy is not None:
            met = self.task.goal.is_met(known.accuracy, self.baseline.accuracy)
            trial, model = replace(known, met=met, recalled=True), None
        else:
            race = Race(self.task.goal, self.baseline)
            trial, model = attempt(self.task, recipe, self.baseline, self._next_number, race)
        self._record_safely(trial, model)
        return trial

    def score_best_in_full(self) -> None:
        """What is handed back has been evaluated on everything, even if its trial was raced out."""
        best = self.best
        if best is None or best.score is None or not best.score.raced_out:
            return
        trial, model = attempt(self.task, best.recipe, self.baseline, self._next_number, None)
        if trial.score is not None:
            self.best = None
            self._record_safely(trial, model)

    @property
    def _next_number(self) -> int:
        return len(self.task.history.trials) + 1

    def _record_safely(self, trial: Trial, model: Model | None) -> None:
        try:
            self._record(trial, model)
        except WorkspaceError as error:
            # The best so far is still in memory: stop and hand it back rather than lose it.
            self.task.watch.request_stop(f"the workspace failed: {error}")

    def _record(self, trial: Trial, model: Model | None) -> None:
        self.tried[trial.recipe.digest] = trial
        self.failures = self.failures + 1 if trial.state is State.FAILED else 0
        improved = self._improves(trial)
        if improved:
            self.best = trial
        self.task.listener.trial(trial, self.best)
        if not trial.recalled:
            self.task.history.append(trial)
            if improved and model is not None:
                self.task.keep(trial, model)
        if model is not None:
            model.close()

    def _improves(self, trial: Trial) -> bool:
        if trial.score is None:
            return False
        if self.best is None:
            return True
        assert self.best.score is not None
        goal, objective = self.task.goal, self.task.objective
        if trial.met != self.best.met:
            return trial.met
        if not trial.met:
            return goal.gain(trial.score.accuracy) > goal.gain(self.best.score.accuracy)
        new, old = (cost(item, objective, goal) for item in (trial.score, self.best.score))
        # A quick look at the clock tells no small differences, and none at all where nothing was
        # measured: the model with less FP32 wins then.
        if objective == "performance" and (new == old or abs(new - old) <= ALIKE * max(new, old)):
            return len(trial.recipe.float_ops) < len(self.best.recipe.float_ops)
        return new < old


def attempt(
    task: Task, recipe: Recipe, baseline: Score, number: int, race: Race | None
) -> tuple[Trial, Model | None]:
    """Build and score one recipe. Whatever goes wrong becomes a FAILED trial with its cause."""
    # Bad calibration data are no fault of the recipe: they end the search, with their own error.
    observations = task.observe(recipe.samples)
    start = time.monotonic()
    made = guarded(lambda: _build_and_score(task, recipe, observations, baseline, number, race))
    spent = time.monotonic() - start
    if isinstance(made, Exception):
        logger.debug("trial %d failed", number, exc_info=made)
        return Trial.failed(number, recipe, made, spent), None
    model, score, met = made
    return Trial(number, recipe, State.DONE, score, met, seconds=spent), model


def _build_and_score(
    task: Task,
    recipe: Recipe,
    observations: Observations | None,
    baseline: Score,
    number: int,
    race: Race | None,
) -> tuple[Model, Score, bool]:
    model = task.backend.build(task.model, recipe, observations)
    task.listener.begin(number, recipe)
    score = replace(task.evaluate(model, race), size=model.nbytes)
    met = task.goal.is_met(score.accuracy, baseline.accuracy)
    if met and task.objective == "performance":
        score = replace(score, latency=task.measure(model))
    return model, score, met


def guarded(work: Callable[[], Value]) -> Value | Exception:
    """What the work gives, or what it raised: it runs the user's code and foreign kernels."""
    try:
        return work()
    except Exception as error:
        return error
