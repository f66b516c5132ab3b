"""The main job: from a request to a Result. The story in one screen, then its nouns."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lpot.backends import detect, get_backend, implied_approach
from lpot.config.availability import check_work, unavailable
from lpot.config.identity import identity
from lpot.config.rules import (
    approach,
    goal,
    limits,
    model_spec,
    objectives,
    rules,
    sampling_sizes,
    weight_settings,
)
from lpot.config.schema import Config
from lpot.core.backend import Approach, Backend, Differentiable, ModelSpec, Observations
from lpot.core.batch import Inputs
from lpot.core.calibration import Calibration
from lpot.core.door import SCRIPT, Door
from lpot.core.errors import CalibrationError, ConfigError, DataError
from lpot.core.evaluate import Evaluator
from lpot.core.history import History
from lpot.core.interrupt import interruptible
from lpot.core.limits import Watch
from lpot.core.loader import Loader
from lpot.core.model import Model
from lpot.core.progress import Chorus, Listener, heard_by
from lpot.core.recipe import OpKey, Recipe
from lpot.core.result import Result
from lpot.core.space import Capability, Rule, TuningSpace, restrict
from lpot.core.store import observations_path, save_observations
from lpot.core.strategy import Policy, Strategy, StrategyContext
from lpot.core.trial import Trial
from lpot.core.trust import trusting
from lpot.core.tune import Executor, Task, tune
from lpot.core.workspace import Workspace, check_output, default_folder
from lpot.jobs.benchmark.quick_look import QuickLook
from lpot.jobs.callbacks.aside import called_back
from lpot.jobs.execute.choose import chosen_executor
from lpot.jobs.finish.held_out import held_out_evaluator
from lpot.jobs.finish.result import finish, float_result
from lpot.jobs.many.pool import Pool
from lpot.jobs.report.beacon import Beacon
from lpot.jobs.settings import with_name
from lpot.jobs.storage.workspace import fetched, workspace_at
from lpot.jobs.tune import shared
from lpot.jobs.tune.advice import advised, how_far
from lpot.jobs.tune.evaluation import calibration_loader, make_evaluator
from lpot.jobs.tune.insight import context
from lpot.jobs.tune.switches import asked_repairs, missing_repairs, switch_rules
from lpot.strategy import get_strategy
from lpot.version import VERSION

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Request:
    """What the user asked for. Objects given here win over what the config says."""

    config: Config
    model: Any
    calib: Any = None
    eval_func: Callable[[Any], Any] | None = None
    eval_loader: Any = None
    held_out: Any = None
    metric: Any = None
    postprocess: Any = None
    q_func: Callable[[Any], Any] | None = None
    train: Any = None  # batches that a pruned model is trained with
    backend: Backend | None = None
    strategy: Strategy | None = None
    rules: tuple[Rule, ...] = ()
    output: Path | None = None
    workspace: str | Path | None = None  # a folder, or a URL that fsspec knows
    new_run: bool = False
    lenient: bool = False
    measure_speed: bool = True
    listener: Listener = field(default_factory=Listener)
    door: Door = SCRIPT
    pool: Pool = field(default_factory=Pool)  # what tunings of one model share


def quantize(request: Request) -> Result:
    """Tune, and never come home empty."""
    with trusting(request.config.model.trust):
        return _quantize(request)


def _quantize(request: Request) -> Result:
    if request.output is not None:
        check_output(request.output, request.model)
        request = replace(request, output=request.output.absolute())
    from lpot.jobs.decoder.job import prepared
    from lpot.jobs.tune.optimize import job_for

    request = prepared(request)
    beacon = Beacon()
    job = job_for(replace(request, listener=Chorus(request.listener, beacon)))
    job.workspace.check(needed=2 * job.model.nbytes + (1 << 20))
    with (
        job.workspace.lock(job.add_note),
        beacon.lit(job.workspace.folder),
        interruptible(job.watch, job.listener),
        called_back(job),
        heard_by(job.listener),
    ):
        evaluator = job.evaluator = make_evaluator(job.request, job.model, job.add_note)
        job.held_out = held_out_evaluator(job)
        if job.comes_to_nothing():
            return float_result(job, job.why_not())
        if evaluator is None:
            return job.build_once()
        history = job.open_history(evaluator)
        request.pool.lend_baseline(shared.baseline_key(job), history)
        job.prepare(evaluator, history)
        job.listener.plan(job.most_trials(), job.watch.limits.timeout)
        with chosen_executor(job, history) as executor:
            outcome = tune(job.task(evaluator, history, executor))
        request.pool.take_baseline(shared.baseline_key(job), history)
        return finish(job, outcome, history)


class Job:
    """The assembled parts of one request. Making it checks everything that costs no evaluation."""

    def __init__(self, request: Request) -> None:
        config = with_name(request.config, request.model)
        self.request = request
        self.config = config
        self.listener = request.listener
        check_work(config)
        self.notes: list[str] = unavailable(config)
        framework = config.model.framework
        self.approach: Approach = approach(config) or implied_approach(framework) or "static"
        found = get_backend(request.backend or framework or detect(request.model))
        self.backend: Backend = found.for_approach(self.approach, weight_settings(config))
        self.framework_word = framework or self.backend.name
        self.listener.phase("loading the model")
        self.model: Model = self.backend.load(request.model, self._model_spec())
        self.source = self.model  # as given; training may put another in its place
        self.fingerprint_of_model = self.model.fingerprint()
        self.calibration = self._calibration()
        self.capability: Capability = self.backend.inspect(
            self.model, self.approach, config.quantization.target
        )
        self.notes += self.capability.notes
        batch_size = 1 if self.calibration is None else self.calibration.batch_size
        self.space: TuningSpace = self._space(sampling_sizes(config, batch_size))
        self.notes += self.space.notes
        self._check_calibration()
        self.goal = goal(config)
        self.objectives = objectives(config)
        self.watch = Watch(limits(config))
        self.workspace = self._workspace()
        self.policy = self._policy()
        self.evaluator: Evaluator | None = None
        self.held_out: Evaluator | None = None
        self._observed: dict[int, Observations] | None = None
        self.harm: dict[OpKey, float] = {}  # by op, once a strategy has asked for the ranking
        for note in self.notes:
            self.listener.note(note)

    def _restricted(self, samples: tuple[int, ...]) -> TuningSpace:
        switched = switch_rules(self.config, self.capability)
        wishes = (*rules(self.config), *switched, *self.request.rules)
        space = restrict(self.capability, wishes, samples, self.request.lenient)
        repairs = asked_repairs(self.config, self.backend) if space.choices else ()
        missing = missing_repairs(self.config, self.backend)
        return replace(space, repairs=repairs, notes=(*space.notes, *missing))

    def _space(self, samples: tuple[int, ...]) -> TuningSpace:
        try:
            return self._restricted(samples)
        except ConfigError as error:
            raise ConfigError(str(error), where=self.config.where(error.path)) from None

    def _policy(self) -> Policy:
        name = self.config.tuning.strategy.name
        chosen = get_strategy(self.request.strategy or name, self.config.quantization.quant_level)
        if chosen.needs == "curvature" and not isinstance(self.backend, Differentiable):
            raise ConfigError(
                f"{name} needs the {chosen.needs} of the loss, which backend {self.backend.name} "
                "can't tell: use mse_v2 or basic",
                path="tuning.strategy.name",
            )
        chosen.check(self.space)
        return chosen

    def most_trials(self) -> int:
        limits = self.watch.limits
        return limits.most_trials(self.policy.most(self.space, limits.timeout > 0))

    # -- calibration -------------------------------------------------------------------------

    @cached_property
    def _loader(self) -> Loader | None:
        loader = calibration_loader(self.request)
        return None if loader is None else Loader(loader)

    def _model_spec(self) -> ModelSpec:
        return replace(model_spec(self.config), sample=self._sample)

    def _sample(self) -> Any:
        return None if self._loader is None else self._loader.peek()

    def _calibration(self) -> Calibration | None:
        loader = self._loader
        if loader is None:
            return None
        sizes = {spec.shape[0] for spec in self.model.inputs or () if spec.shape}
        size = sizes.pop() if len(sizes) == 1 else None
        fixed = size if isinstance(size, int) else None
        return Calibration(loader, self.model.input_names, fixed, self.model.tries())

    def _check_calibration(self) -> None:
        options = (option for options in self.space.choices.values() for option in options)
        if self.calibration is None and any(option.mode == "static" for option in options):
            door = self.request.door
            raise CalibrationError(
                f"static quantization needs calibration data: give a loader ({door.calib}), "
                "or `quantization.calibration.dataloader` in the yaml; "
                f"{door.dynamic} needs none"
            )
        if self.calibration is not None:
            try:
                self.backend.run(self.model, self.calibration.first.inputs)
            except DataError as error:  # now, not after the baseline was evaluated for an hour
                raise CalibrationError(f"the first calibration batch: {error}") from error

    def observe(self, samples: int) -> Observations | None:
        """Statistics for so many samples; the data are read once, when first asked for."""
        if self.calibration is None:
            return None
        if self._observed is None:
            self._observed = shared.observed(self)
            for note in self.calibration.notes:
                self.add_note(note)
            self._store(self._observed)
        return self._observed[samples]

    def _store(self, observed: dict[int, Observations]) -> None:
        place = observations_path(self.workspace.folder, self.fingerprint)
        try:
            save_observations(place, observed)
            self.workspace.sync()
        except OSError as error:
            self.add_note(
                f"warning: {place} can't be written ({error.strerror}): "
                "the tuning goes on, but `recover` will not find its statistics"
            )

    # -- parts -------------------------------------------------------------------------------

    def add_note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.listener.note(text)

    def _workspace(self) -> Workspace:
        given = self.request.workspace or self.config.tuning.workspace.path
        default = default_folder(self.framework_word, self.config.model.name)
        return workspace_at(given or default, self.request.new_run)

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """What a history must agree with to be gone on with."""
        return self._facts()

    def _facts(self) -> dict[str, str]:
        return {
            "model": self.fingerprint_of_model,
            "config": _hash([identity(self.config), [repr(rule) for rule in self.request.rules]]),
            "data": "" if self.calibration is None else self.calibration.fingerprint(),
            "versions": _hash({"lpot": VERSION, **self.backend.versions()}),
        }

    def open_history(self, evaluator: Evaluator) -> History:
        info = {
            "framework": self.backend.name,
            "name": self.config.model.name,
            "goal": self.goal.to_json(),
            "objectives": self.objectives.to_json(),
        }
        place = self.workspace
        history = History.open(place.history, self.fingerprint, info, place.copy_line)
        resume = self.config.tuning.workspace.resume
        if resume:
            history.adopt(History.read(fetched(resume)))
        for note in history.notes:
            self.add_note(note)
        if history.baseline is not None:
            done = sum(trial.score is not None for trial in history.trials)
            self.add_note(f"going on from {history.path}: baseline and {done} trial(s) are known")
            if (
                None not in (history.evaluator, evaluator.identity)
                and history.evaluator != evaluator.identity
            ):
                door = self.request.door
                self.add_note(
                    f"warning: {evaluator.name} changed since this history was written; its "
                    "scores are used all the same. If they no longer hold, delete "
                    f"{history.path} or {door.again}"
                )
        return history

    def task(self, evaluator: Evaluator, history: History, executor: Executor) -> Task:
        return Task(
            backend=self.backend,
            model=self.model,
            space=self.space,
            strategy=self.policy,
            settles=self.policy.goes_on(self.config.tuning.strategy.settle),
            evaluate=evaluator,
            goal=self.goal,
            observe=self.observe,
            history=history,
            watch=self.watch,
            objectives=self.objectives,
            measure=self.measure,
            keep=self.keep,
            prefer=partial(advised, self),
            context=self.strategy_context(),
            executor=executor,
            has_budget=self.watch.limits.timeout > 0,
            listener=self.listener,
            note=self.add_note,
            baseline_runs=self.config.tuning.accuracy_criterion.baseline_runs,
        )

    def strategy_context(self) -> StrategyContext:
        """What a strategy may know, but for the baseline."""
        return context(self)

    @property
    def timing_inputs(self) -> Inputs | None:
        """The batch that models are timed on."""
        return None if self.calibration is None else self.calibration.first.inputs

    def package(self, result: Result) -> None:
        """What some jobs put beside the model in the end."""

    def prepare(self, evaluator: Evaluator, history: History) -> None:
        """What some jobs do before they search."""

    @cached_property
    def measure(self) -> QuickLook:
        """What the objectives, or time to go on, need to know of each trial."""
        words = self.objectives.words
        return QuickLook(
            None if self.calibration is None else self.calibration.first.inputs,
            time=self.request.measure_speed
            and ("performance" in words or self.watch.limits.timeout > 0),
            memory="footprint" in words,
        )

    @property
    def best_path(self) -> Path:
        return self.workspace.folder / self.backend.best_name

    def keep(self, trial: Trial, model: Model) -> None:
        """The best so far is on disk before the next trial begins."""
        model.met = trial.met
        model.card = self.card(trial)
        self.backend.save(model, self.best_path)
        self.workspace.sync()

    def card(self, trial: Trial | None) -> dict[str, Any]:
        data = None if self.calibration is None else self.calibration.fingerprint()
        return {
            "lpot": VERSION,
            "name": self.config.model.name,
            "seed": self.config.tuning.random_seed,
            "target": self.config.quantization.target,
            "source_model": self.fingerprint_of_model,
            "calibration": {"samples": list(self.space.samples), "fingerprint": data},
            "goal": str(self.goal),
            "accuracy": None if trial is None else trial.accuracy,
        }

    def comes_to_nothing(self) -> bool:
        """Is even the recipe with the most in low precision the FP32 model?"""
        if not self.space.choices:
            return not self.space.repairs
        recipe = self.space.default()
        return bool(recipe.low_ops) and not self.backend.outcome(self.model, recipe).low_ops

    def why_not(self) -> str:
        """Why nothing can be quantized, by the reasons that concern the most ops."""
        reasons = Counter(info.reason for info in self.capability.ops.values() if info.reason)
        kept = sum(info.can_be_low for info in self.capability.ops.values())
        if kept:
            reasons["kept in FP32 by your own rules"] = kept
        told = "; ".join(f"{count} op(s): {reason}" for reason, count in reasons.most_common(3))
        return f"no op of this model can be quantized ({told or 'it has no ops'})"

    def build(self, recipe: Recipe) -> Model:
        return self.backend.build(self.model, recipe, self.observe(recipe.samples))

    def first_recipe(self) -> Recipe:
        """All in low precision, in the way that is nearest to FP32 without any label."""
        return advised(self, self.space).default()

    def build_once(self) -> Result:
        """Nothing to evaluate with: one all-INT8 model, and it is said that nobody checked it."""
        given = f"no {self.request.door.evaluate} function and no metric were given"
        self.add_note(f"not evaluated: {given}, so accuracy is unknown")
        recipe = self.first_recipe()
        model = self.build(recipe)
        if told := how_far(self, model, self.observe(recipe.samples)):
            self.add_note(told)
        model.card = self.card(None)
        self.backend.save(model, self.best_path)
        return finish(self, None, None, model)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
