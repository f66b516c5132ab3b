"""What another process needs to make attempts: sent once, before any recipe."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lpot.backends import get_backend
from lpot.config.rules import model_spec
from lpot.core.backend import Observations
from lpot.core.batch import Inputs
from lpot.core.errors import ConfigError, EvaluationError, LpotError
from lpot.core.goal import Goal
from lpot.core.measure import latency
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.race import Race
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, Trial
from lpot.core.tune import Bench, attempt
from lpot.jobs.tune.evaluation import make_evaluator

if TYPE_CHECKING:
    from lpot.jobs.tune.quantize import Job, Request

DUMP_ERRORS = (
    pickle.PicklingError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
)


@dataclass(frozen=True, eq=False)
class Kit:
    """A request without what stays at home (calibration, strategy, listener), and what is known.

    `inputs` is a batch to measure time with; None where trials side by side would disturb it.
    """

    request: Request
    backend: str
    observations: Mapping[int, Observations]
    baseline: Score
    goal: Goal
    has_budget: bool
    inputs: Inputs | None = None
    memory: Any = None  # what the baseline taught the evaluator: all must race alike

    def open(self) -> Bench:
        """Load the model and make the evaluator, in the process that got the kit."""
        backend = get_backend(self.request.backend or self.backend)
        model = backend.load(self.request.model, model_spec(self.request.config))
        evaluator = make_evaluator(self.request, model)
        if evaluator is None:
            raise EvaluationError("a process that makes trials has nothing to evaluate them with")
        evaluator.remember(self.memory)
        return Bench(
            backend=backend,
            model=model,
            evaluate=evaluator,
            goal=self.goal,
            observe=self.observations.get,
            measure=self._measure,
            has_budget=self.has_budget,
        )

    def attempt(self, bench: Bench, number: int, recipe: Recipe) -> Trial:
        race = Race(self.goal, self.baseline)
        trial, model = attempt(bench, recipe, self.baseline, number, race)
        if model is not None:
            model.close()
        return trial

    def _measure(self, model: Model, score: Score) -> Score:
        if self.inputs is None:
            return score
        inputs = self.inputs
        timing = latency(lambda: model.backend.run(model, inputs), seconds=0.3)
        return replace(score, latency=timing.median)


def pack(job: Job, baseline: Score, alone: bool, memory: Any = None) -> bytes:
    """The kit of a job. `alone`: one trial at a time, so that its time can be measured."""
    request = replace(
        job.request,
        calib=None,
        held_out=None,
        strategy=None,
        rules=(),
        output=None,
        listener=Listener(),
    )
    observations = {size: seen for size in job.space.samples if (seen := job.observe(size))}
    timed = alone and job.request.measure_speed and job.calibration is not None
    kit = Kit(
        request=request,
        backend=job.framework_word,
        observations=observations,
        baseline=baseline,
        goal=job.goal,
        has_budget=job.watch.limits.timeout > 0,
        inputs=job.calibration.first.inputs if timed and job.calibration is not None else None,
        memory=memory,
    )
    try:
        return dump(kit)
    except DUMP_ERRORS as error:
        raise ConfigError(
            f"the model, eval_func, loader and metric must be sent to another process, and one of "
            f"them can't be ({error}): give the model as a file, define functions and classes at "
            "the top of a module, or use `executor: serial`",
            path="tuning.executor",
        ) from error


def unpack(raw: bytes) -> Kit:
    """Of our own parent process, never of a file."""
    kit = pickle.loads(raw)
    if not isinstance(kit, Kit):
        raise LpotError(f"expected a kit for trials, got a {type(kit).__name__}")
    return kit


def dump(value: Any) -> bytes:
    """For a process of our own; raises one of DUMP_ERRORS for what can't be sent."""
    # Functions of a notebook, and those inside others, need more than the standard library does.
    found = importlib.util.find_spec("cloudpickle")
    pickler: Any = pickle if found is None else importlib.import_module("cloudpickle")
    dumped: bytes = pickler.dumps(value)
    return dumped
