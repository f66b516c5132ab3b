"""The loop. A strategy proposes recipes; each is recalled or built and scored; the best is kept.

Everything else in lpot is a noun used here. A broad `except` stands in one place, `guarded`: one
bad recipe must not end the search.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lpot.core.backend import Backend, Observations
from lpot.core.blame import raised
from lpot.core.errors import EvaluationError, LpotError, SaveError, WorkspaceError
from lpot.core.evaluation.evaluate import Evaluator
from lpot.core.evaluation.race import Race
from lpot.core.files.history import History, ProcessDied
from lpot.core.goal import Goal, Objectives, grain_warning, noise_warning
from lpot.core.interrupt import Terminated
from lpot.core.limits import BAR_IS_MET, Watch
from lpot.core.model import Model
from lpot.core.preference import Preference
from lpot.core.progress import Listener
from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Strategy, StrategyContext
from lpot.core.trial import Score, State, Trial

logger = logging.getLogger(__name__)

Value = TypeVar("Value")

Made = tuple[Trial, Model | None]  # the model stays away where it was built in another process
Numbered = tuple[int, Recipe]
Attempt = Callable[[int, Recipe], Made]
Executor = Callable[[Attempt, Iterable[Numbered]], Iterable[Made]]


def serial(attempt: Attempt, recipes: Iterable[Numbered]) -> Iterator[Made]:
    """One after the other, in this process; the other executors keep this signature.

    A recipe is taken from `recipes` only when it can be worked on: limits are checked then.
    """
    for number, recipe in recipes:
        yield attempt(number, recipe)


@dataclass(frozen=True, eq=False, kw_only=True)
class Bench:
    """All that one attempt needs, in whatever process it is made."""

    backend: Backend
    model: Model
    evaluate: Evaluator
    goal: Goal
    observe: Callable[[int], Observations | None]  # statistics for so many samples, gathered once
    measure: Callable[[Model, Score], Score] = lambda model, score: score  # adds time and memory
    listener: Listener = field(default_factory=Listener)
    has_budget: bool = False  # time was given to go on after the first recipe that meets the bar
    proves: Callable[[Recipe], bool] = lambda recipe: True  # do the samples, where that is asked?


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(Bench):
    """All that a tuning needs, assembled by `jobs/tune/quantize.py`."""

    space: TuningSpace
    strategy: Strategy
    settles: bool = False  # the strategy may go on after its first success, and ends by itself
    history: History
    watch: Watch
    objectives: Objectives = field(default_factory=Objectives)
    keep: Callable[[Trial, Model], None] = lambda trial, model: None  # put the best so far on disk
    prefer: Callable[[TuningSpace], TuningSpace] = lambda space: space  # what needs no labels
    context: StrategyContext = field(default_factory=StrategyContext)  # what strategies may know
    executor: Executor = serial
    note: Callable[[str], None] = lambda text: None  # what the user should read in the end, too
    baseline_runs: int = 1  # more than one shows how much the evaluation itself varies
    sense: Callable[[Score, Trial | None], None] = lambda baseline, trial: None  # raises, or not


@dataclass(frozen=True)
class Outcome:
    baseline: Score
    best: Trial | None
    trials: tuple[Trial, ...]
    stopped: str


def tune(task: Task) -> Outcome:
    """Run the strategy to its end, or until a limit is reached."""
    task.evaluate.remember(task.history.memory)
    baseline = task.history.baseline or score_baseline(task)
    task.goal.check_baseline(baseline.accuracy)
    task.sense(baseline, None)
    task.listener.baseline(baseline, task.goal)
    search = _Search(task, baseline)
    proposals = task.strategy(task.prefer(task.space), _context(task, search))
    batch = next(proposals, None)
    while batch:
        trials = search.run(batch)
        if search.stopped or len(trials) < len(batch):
            proposals.close()
            break
        try:
            batch = proposals.send(trials)
        except StopIteration:
            break
    search.try_suspects()
    search.recall_rest()
    search.score_best_in_full()
    stopped = search.stopped or task.watch.requested or "the strategy has nothing left to try"
    trials = sorted(search.tried.values(), key=lambda trial: trial.number)
    return Outcome(baseline, search.best, tuple(trials), stopped)


def _context(task: Task, search: _Search) -> StrategyContext:
    return replace(
        task.context,
        goal=task.goal,
        baseline=search.baseline.accuracy,
        latency=search.baseline.latency,
        objectives=task.objectives,
        budget=task.has_budget,
        confirm=search.confirm,
        forget=task.history.forget,
    )


def score_baseline(task: Task) -> Score:
    """FP32's score; the mean of several where the evaluation's own noise is asked for."""
    task.listener.phase("evaluating FP32")
    scores = [evaluated(task.evaluate, task.model) for _ in range(max(1, task.baseline_runs))]
    accuracies = [score.accuracy for score in scores]
    score = replace(scores[0], accuracy=sum(accuracies) / len(accuracies))
    for warning in (
        noise_warning(task.goal, accuracies, score.accuracy),
        grain_warning(task.goal, score, task.evaluate.grain),
    ):
        if warning:
            task.note(warning)
    score = replace(task.measure(task.model, score), size=task.model.nbytes)
    task.model.close()
    evaluate = task.evaluate
    pieces = evaluate.pieces.get(None) if task.baseline_runs <= 1 else None
    task.history.record_baseline(score, evaluate.identity, evaluate.memory, pieces)
    return score


def evaluated(evaluate: Evaluator, model: Model, race: Race | None = None) -> Score:
    """The score of FP32, or of a model that had one: what goes wrong ends the tuning."""
    score = guarded(lambda: evaluate(model, race))
    if isinstance(score, LpotError) and not isinstance(score, EvaluationError):
        raise score
    if isinstance(score, Exception):
        known = isinstance(score, EvaluationError)
        said = str(score) if known else f"{evaluate.name} raised {raised(score)}"
        raise EvaluationError(f"on the FP32 baseline: {said}") from score
    return score


class _Search:
    """What has been tried so far in this run, and the best of it."""

    def __init__(self, task: Task, baseline: Score) -> None:
        self.task = task
        self.baseline = baseline
        self.preference = Preference(task.goal, baseline, task.objectives)
        self.tried: dict[str, Trial] = {}
        self.begun: set[str] = set()  # those in the hands of an executor included
        self.working: set[str] = set()  # those alone
        self.outcomes: dict[str, str] = {}  # what is built → the first recipe that comes to it
        self.alike: dict[str, str | None] = {}  # recipe → the one that comes to the same
        self.number = len(task.history.trials)
        self.best: Trial | None = None
        self.stopped = ""
        self.failures = 0  # in a row
        self.repeats = 0  # in a row: a strategy that proposes nothing new must end, too
        self.suspects: list[Recipe] = []  # the process died in them: they come last
        task.watch.leave = self.leave

    def run(self, batch: Sequence[Recipe], last: bool = False) -> list[Trial]:
        """The trials of a batch, in its order; fewer of them when a limit was reached."""
        try:
            for trial, model in self.task.executor(self.attempt, self.fresh(batch, last)):
                self._record_safely(trial, model)
        finally:  # whatever made us leave, a rerun must not take it for a crash
            self.leave()
            self.working.clear()
        return [trial for trial in map(self._trial_of, batch) if trial is not None]

    def _trial_of(self, recipe: Recipe) -> Trial | None:
        """Its own trial, or that of another recipe of which the same model is made."""
        if recipe.digest in self.tried or recipe.digest not in self.alike:
            return self.tried.get(recipe.digest)
        twin = self.alike[recipe.digest]
        if twin is None:  # FP32 itself: its score is known, and it is no answer
            return Trial(0, recipe, State.DONE, self.baseline, False)
        trial = self.tried.get(twin)
        return None if trial is None else replace(trial, recipe=recipe)

    def _is_known_by_another(self, recipe: Recipe) -> bool:
        """Is the very same model made of a recipe before it, or is it FP32?"""
        made = self.task.backend.outcome(self.task.model, recipe)
        if recipe.low_ops and not made.low_ops and not made.repairs.floats:
            self.alike[recipe.digest] = None
            return True
        twin = self.outcomes.setdefault(made.digest, recipe.digest)
        if twin != recipe.digest:
            self.alike[recipe.digest] = twin
        return twin != recipe.digest

    def leave(self) -> None:
        with suppress(WorkspaceError):
            self.task.history.leave(self.working)

    def try_suspects(self) -> None:
        """With all else tried, those in which the process died, once: it may have been killed."""
        if self.suspects and self.stopped in ("", BAR_IS_MET):
            why, suspects, self.suspects = self.stopped, self.suspects, []
            self.begun -= {recipe.digest for recipe in suspects}
            self.run(suspects, last=True)
            self.stopped = self.stopped or why

    def recall_rest(self) -> None:
        """Whoever stops a rerun early still gets the best of what was known before."""
        if not self.task.watch.requested and not self.task.watch.time_is_up:
            return
        for known in self.task.history.trials:
            if known.accuracy is not None and known.recipe.digest not in self.begun:
                self.begun.add(known.recipe.digest)
                self._recall(known)

    def _recall(self, known: Trial) -> None:
        assert known.accuracy is not None
        met = self.task.goal.is_met(known.accuracy, self.baseline.accuracy)
        met = met and (known.met or not self.task.goal.proven)
        self._record_safely(replace(known, met=met, recalled=True), None)

    def fresh(self, batch: Sequence[Recipe], last: bool = False) -> Iterator[Numbered]:
        """The recipes that need work, as long as no limit is reached; known ones are recalled."""
        for recipe in batch:
            self.stopped = self._over(last) or ""
            if self.stopped:
                return
            if recipe.digest in self.begun or (not last and self._is_known_by_another(recipe)):
                self.repeats += 1
                continue
            self.repeats = 0
            self.begun.add(recipe.digest)
            known = self.task.history.recall(recipe)
            if known is not None and known.accuracy is not None:
                self._recall(known)
            elif self.task.history.is_deadly(recipe):
                died = ProcessDied("its process crashed repeatedly: not retried")
                self._record_safely(Trial.failed(self._take_number(), recipe, died, 0.0), None)
            elif self.task.history.is_suspect(recipe) and not last:
                died = ProcessDied("its process crashed more than once: it is tried last")
                self.suspects.append(recipe)
                self._record_safely(Trial.failed(self._take_number(), recipe, died, 0.0), None)
            else:
                yield self._begin(recipe), recipe

    def _begin(self, recipe: Recipe) -> int:
        number = self._take_number()
        self.working.add(recipe.digest)
        try:
            self.task.history.begin(number, recipe, apart=self.task.executor is not serial)
        except WorkspaceError as error:
            self.task.watch.request_stop(f"the workspace failed: {error}")
        return number

    def _over(self, last: bool) -> str | None:
        met = bool(self.best and self.best.met)
        first_is_enough = met and not self.task.settles and not last
        if self.repeats >= 1000:
            return "the strategy keeps proposing the same recipes"
        return self.task.watch.over(len(self.begun), self.failures, first_is_enough)

    def attempt(self, number: int, recipe: Recipe) -> Made:
        return attempt(
            self.task, recipe, self.baseline, number, Race(self.task.goal, self.baseline)
        )

    def score_best_in_full(self) -> None:
        """What is handed back has been evaluated on everything; the next best where it misses."""
        while (best := self.best) is not None and self.confirm(best) is not best:
            pass

    def confirm(self, trial: Trial) -> Trial:
        """The trial on everything, where it was raced out; else, or if that fails, the same one.

        One that then meets the bar takes the place of a best that was raced out.
        """
        if trial.score is None or not trial.score.raced_out or self.task.watch.requested:
            return trial  # whoever asked us to stop waits for no whole evaluation
        whole, model = attempt(self.task, trial.recipe, self.baseline, self._take_number(), None)
        if whole.score is None:
            return trial
        if self.best is not None and self.best.score is not None and self.best.score.raced_out:
            self.best = None if whole.met else self._best_without(trial)
        self._record_safely(whole, model)
        return whole

    def _best_without(self, trial: Trial) -> Trial | None:
        """The best of the others that meet the bar."""
        found: Trial | None = None
        for other in self.tried.values():
            is_other = other.met and other.recipe.digest != trial.recipe.digest
            if is_other and self.preference.prefers(other, found):
                found = other
        return found

    def _take_number(self) -> int:
        self.number += 1
        return self.number

    def _record_safely(self, trial: Trial, model: Model | None) -> None:
        try:
            self._record(trial, model)
        except WorkspaceError as error:
            # The best so far is still in memory: stop and hand it back rather than lose it.
            self.task.watch.request_stop(f"the workspace failed: {error}")

    def _record(self, trial: Trial, model: Model | None) -> None:
        if trial.score is not None:  # before it is known: a rerun must ask again
            self.task.sense(self.baseline, trial)
        self.tried[trial.recipe.digest] = trial
        self.working.discard(trial.recipe.digest)
        self.failures = self.failures + 1 if trial.state is State.FAILED else 0
        before = self.best
        improved = self.preference.prefers(trial, before)
        if improved:
            self.best = trial
        self._tell(trial, self.best, improved)
        if improved and not trial.recalled:
            self._keep(trial, model, before)
        if model is not None:
            model.close()

    def _tell(self, trial: Trial, best: Trial | None, improved: bool = False) -> None:
        """Written down first: a listener may be the user's, and raise."""
        pieces = self.task.evaluate.pieces.get(trial.recipe) if improved else None
        try:
            if not trial.recalled:
                self.task.history.append(trial, pieces)
        finally:
            self.task.listener.trial(trial, best)

    def _keep(self, trial: Trial, model: Model | None, before: Trial | None) -> None:
        """Put the best on disk. One that can't be saved is no result: its trial has failed."""
        if model is not None:  # an evaluation may have changed it: another one is built
            model.close()
        error = guarded(lambda: self.task.keep(trial, self._build(trial.recipe)))
        if isinstance(error, WorkspaceError) and not isinstance(error, SaveError):
            raise error
        if isinstance(error, Exception):
            failed = Trial.failed(trial.number, trial.recipe, error, trial.seconds)
            self.tried[trial.recipe.digest] = failed
            self.best = before
            self.failures += 1
            self._tell(failed, before)

    def _build(self, recipe: Recipe) -> Model:
        return self.task.backend.build(self.task.model, recipe, self.task.observe(recipe.samples))


def attempt(bench: Bench, recipe: Recipe, baseline: Score, number: int, race: Race | None) -> Made:
    """Build and score one recipe. What goes wrong becomes a FAILED trial with its cause."""
    # Bad calibration data are no fault of the recipe: they end the search, with their own error.
    observations = bench.observe(recipe.samples)
    start = time.monotonic()
    made = guarded(lambda: _build_and_score(bench, recipe, observations, baseline, number, race))
    spent = time.monotonic() - start
    if isinstance(made, Exception):
        logger.debug("trial %d failed", number, exc_info=made)
        return Trial.failed(number, recipe, made, spent), None
    model, score, met = made
    return Trial(number, recipe, State.DONE, score, met, seconds=spent), model


def _build_and_score(
    bench: Bench,
    recipe: Recipe,
    observations: Observations | None,
    baseline: Score,
    number: int,
    race: Race | None,
) -> tuple[Model, Score, bool]:
    model = bench.backend.build(bench.model, recipe, observations)
    bench.listener.begin(number, recipe)
    score = replace(bench.evaluate(model, race), size=model.nbytes)
    met = bench.goal.is_met(score.accuracy, baseline.accuracy)
    if met and bench.goal.proven and not score.raced_out:
        met = bench.proves(recipe)
    if met or (bench.has_budget and not score.raced_out):
        score = bench.measure(model, score)
    return model, score, met


def guarded(work: Callable[[], Value]) -> Value | Exception:
    """What the work gives, or what it raised: it runs the user's code and foreign kernels."""
    try:
        return work()
    except Exception as error:
        return error
    except Terminated:  # ours: the program is to end
        raise
    except SystemExit as error:
        return EvaluationError(
            f"the code it runs called sys.exit({error.code!r}), which would have ended the whole "
            "program: return a score, or raise an exception"
        )
