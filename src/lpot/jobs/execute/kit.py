"""What another process needs to make attempts: sent once, before any recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lpot.backends import get_backend
from lpot.config.rules import model_spec
from lpot.core.backend import Observations
from lpot.core.errors import ConfigError, EvaluationError, LpotError, a_kind
from lpot.core.evaluation.race import Race
from lpot.core.goal import Goal
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, Trial
from lpot.core.trust import trusting
from lpot.core.tune import Bench, attempt
from lpot.jobs.benchmark.quick_look import QuickLook
from lpot.jobs.execute.dump import DUMP_ERRORS, Shipment, ship, unship
from lpot.jobs.many.pool import Pool
from lpot.jobs.tune.evaluation import make_evaluator
from lpot.jobs.tune.job import Job
from lpot.jobs.tune.request import Request


@dataclass(frozen=True, eq=False)
class Kit:
    """A request without what stays at home (calibration, strategy, listener), and what is known."""

    request: Request
    backend: str
    observations: Mapping[int, Observations]
    baseline: Score
    goal: Goal
    has_budget: bool
    measure: QuickLook
    memory: Any = None  # what the baseline taught the evaluator: all must race alike
    elsewhere: bool = False  # it may be opened on another kind of machine

    def open(self) -> Bench:
        """Load the model and make the evaluator, in the process that got the kit."""
        backend = get_backend(self.request.backend or self.backend)
        with trusting(self.request.config.model.trust):
            model = backend.load(self.request.model, model_spec(self.request.config))
        evaluator = make_evaluator(self.request, model)
        if evaluator is None:
            raise EvaluationError("a trial process has nothing to evaluate with")
        evaluator.remember(self.memory)
        return Bench(
            backend=backend,
            model=model,
            evaluate=evaluator,
            goal=self.goal,
            observe=self.observations.get,
            measure=self._measure(model),
            has_budget=self.has_budget,
        )

    def _measure(self, model: Model) -> Callable[[Model, Score], Score]:
        known = self.baseline.latency
        if not self.elsewhere or not self.measure.time or known is None:
            return self.measure
        return Relative(self.measure, model, known)

    def with_model(self, place: str) -> Kit:
        """The same kit where the model's files have come to lie elsewhere."""
        return replace(self, request=replace(self.request, model=place))

    def attempt(self, bench: Bench, number: int, recipe: Recipe) -> Trial:
        race = Race(self.goal, self.baseline)
        trial, model = attempt(bench, recipe, self.baseline, number, race)
        if model is not None:
            model.close()
        return trial


class Relative:
    """Times of another machine are told as those of the one that FP32 was timed on first.

    FP32 is timed there as well: two machines differ by a factor, their trials should not.
    """

    def __init__(self, look: QuickLook, fp32: Model, known: float) -> None:
        self._look = look
        self._fp32 = fp32
        self._known = known
        self._here: float | None = None

    def __call__(self, model: Model, score: Score) -> Score:
        found = self._look(model, score)
        if found.latency is None:
            return found
        if self._here is None:
            self._here = replace(self._look, memory=False)(self._fp32, score).latency
        assert self._here
        return replace(found, latency=found.latency * self._known / self._here)


def pack(
    job: Job,
    baseline: Score,
    alone: bool,
    memory: Any = None,
    elsewhere: bool = False,
    kind: type[Kit] = Kit,
) -> Shipment:
    """The kit of a job. `alone`: one trial at a time, so that its time can be measured."""
    request = replace(
        job.request,
        calib=None,
        held_out=None,
        strategy=None,
        rules=(),
        output=None,
        listener=Listener(),
        pool=Pool(),
    )
    observations = {size: seen for size in job.space.samples if (seen := job.observe(size))}
    kit = kind(
        request=request,
        backend=job.framework_word,
        observations=observations,
        baseline=baseline,
        goal=job.goal,
        has_budget=job.watch.limits.timeout > 0,
        measure=replace(job.measure, time=job.measure.time and alone),  # others would disturb it
        memory=memory,
        elsewhere=elsewhere,
    )
    try:
        return ship(kit, job.backend.reduced)
    except DUMP_ERRORS as error:
        raise ConfigError(
            f"the model, eval_func, loader and metric must be sent to another process, and one of "
            f"them can't be ({error}): give the model as a file, define functions and classes at "
            "the top of a module, or use `executor: serial`",
            path="tuning.executor",
        ) from error


def unpack(head: bytes, sizes: Sequence[int], chunks: Iterable[Any]) -> Kit:
    """Of our own parent process, never of a file."""
    kit = unship(head, sizes, chunks)
    if not isinstance(kit, Kit):
        raise LpotError(f"expected a kit for trials, got {a_kind(kit)}")
    return kit
