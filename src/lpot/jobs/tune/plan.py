"""Everything that is decided before an evaluation is spent: one frozen value, made once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
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
from lpot.core.backend import Approach, Backend
from lpot.core.calibration import Calibration
from lpot.core.errors import CalibrationError, ConfigError, DataError
from lpot.core.files.workspace import Workspace, default_folder
from lpot.core.goal import Goal, Objectives
from lpot.core.limits import Limits
from lpot.core.loader import Loader
from lpot.core.model import Model
from lpot.core.space import Capability, TuningSpace
from lpot.core.strategy import Policy
from lpot.jobs.settings import with_name
from lpot.jobs.storage.workspace import own_workspace, workspace_at
from lpot.jobs.tune.evaluation import calibration_loader
from lpot.jobs.tune.mode import Loop, Mode, mode_of
from lpot.jobs.tune.request import Door, Request
from lpot.version import VERSION


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """What will be done with which model, and to what end."""

    request: Request
    mode: Mode
    config: Config
    backend: Backend
    source: Model  # as given
    fingerprint_of_model: str
    approach: Approach
    calibration: Calibration | None
    capability: Capability
    space: TuningSpace  # as the user's rules leave it
    policy: Policy
    goal: Goal
    objectives: Objectives
    limits: Limits
    workspace: Workspace
    loop: Loop | None = None  # the training to be done first, if any
    remarks: tuple[str, ...] = ()  # what the user should know before it begins

    @property
    def framework_word(self) -> str:
        return self.config.model.framework or self.backend.over or self.backend.name

    @property
    def best_path(self) -> Path:
        return self.workspace.folder / self.backend.best_name

    def most_trials(self) -> int:
        return self.limits.most_trials(self.policy.most(self.space, self.limits.timeout > 0))

    @cached_property
    def facts(self) -> dict[str, str]:
        """What a history must agree with to be continued."""
        wishes = [repr(rule) for rule in self.request.rules]
        return {
            "model": self.fingerprint_of_model,
            "config": _hash([identity(self.config), wishes]),
            "data": "" if self.calibration is None else self.calibration.fingerprint(),
            "versions": _hash({"lpot": VERSION, **self.backend.versions()}),
        }

    @cached_property
    def question(self) -> dict[str, str]:
        """What a folder belongs to: an answer to another one is not written over."""
        return {**self.facts, **self.mode.question(self)}

    def comes_to_nothing(self) -> bool:
        """Is even the recipe with the most in low precision the FP32 model?"""
        if not self.space.choices:
            return not self.space.repairs
        recipe = self.space.default()
        return bool(recipe.low_ops) and not self.backend.outcome(self.source, recipe).low_ops

    def why_not(self) -> str:
        """Why nothing can be quantized."""
        return self.mode.why_not(self)


def make_plan(request: Request) -> Plan:
    """Load, inspect and check; whatever is wrong is an error now, not after an hour."""
    mode = mode_of(request)
    config = with_name(request.config, request.model)
    check_work(config)
    framework = config.model.framework
    way = approach(config) or implied_approach(framework) or "static"
    found = get_backend(request.backend or framework or detect(request.model))
    loader = _loader(request)
    backend = _backend(request, mode, found, way, loader is not None)
    request.listener.phase("loading the model")
    sample = (lambda: None) if loader is None else loader.peek
    model = backend.load(request.model, replace(model_spec(config), sample=sample))
    request = mode.bound(request, config, model)
    loader = _loader(request)
    fingerprint = model.fingerprint()
    calibration = _calibration(loader, model)
    capability = backend.inspect(model, way, config.quantization.target)
    batch_size = 1 if calibration is None else calibration.batch_size
    space = _space(mode, request, config, backend, capability, batch_size)
    mode.check(request, config, backend, model, calibration is not None)
    if calibration is not None or mode.calibrates:
        _check_calibration(request.door, backend, model, calibration, space)
    plan = Plan(
        request=request,
        mode=mode,
        config=config,
        backend=backend,
        source=model,
        fingerprint_of_model=fingerprint,
        approach=way,
        calibration=calibration,
        capability=capability,
        space=space,
        policy=mode.policy(request, config, backend, space),
        goal=goal(config),
        objectives=objectives(config),
        limits=limits(config),
        workspace=Workspace(default_folder(framework or backend.name, config.model.name)),
        loop=mode.loop(request, config, backend),
        remarks=(
            *request.remarks,
            *unavailable(config),
            *capability.notes,
            *space.notes,
            *mode.unused(request, config),
        ),
    )
    return _placed(plan)


def _backend(
    request: Request, mode: Mode, found: Backend, way: Approach, calibrated: bool
) -> Backend:
    """The backend that serves the approach, and few bits for the ops that rules ask them for."""
    config = request.config
    settings = {**weight_settings(config), "calibrated": calibrated}
    backend = found.for_approach(way, settings)
    few = [rule for rule in (*rules(config), *request.rules) if rule.asks_few_bits]
    if not few or not mode.takes_few_bits:
        return backend
    try:
        return backend.offering_few_bits(few, settings)
    except ConfigError as error:
        raise ConfigError(str(error), where=config.where(error.path)) from None


def _loader(request: Request) -> Loader | None:
    given = calibration_loader(request)
    return None if given is None else Loader(given)


def _calibration(loader: Loader | None, model: Model) -> Calibration | None:
    if loader is None:
        return None
    sizes = {spec.shape[0] for spec in model.inputs or () if spec.shape}
    size = sizes.pop() if len(sizes) == 1 else None
    fixed = size if isinstance(size, int) else None
    return Calibration(loader, model.input_names, fixed, model.tries())


def _space(
    mode: Mode,
    request: Request,
    config: Config,
    backend: Backend,
    capability: Capability,
    batch_size: int,
) -> TuningSpace:
    try:
        samples = sampling_sizes(config, batch_size)
        return mode.space(request, config, backend, capability, samples)
    except ConfigError as error:
        raise ConfigError(str(error), where=config.where(error.path)) from None


def _check_calibration(
    door: Door, backend: Backend, model: Model, calibration: Calibration | None, space: TuningSpace
) -> None:
    options = (option for options in space.choices.values() for option in options)
    if calibration is None:
        if any(option.mode == "static" for option in options):
            raise CalibrationError(
                f"static quantization needs calibration data: give a loader ({door.calib}), "
                "or `quantization.calibration.dataloader` in the yaml; "
                f"{door.dynamic} needs none"
            )
        return
    try:
        backend.run(model, calibration.first.inputs)
    except DataError as error:  # now, not after the baseline was evaluated for an hour
        raise CalibrationError(f"the first calibration batch: {error}") from error


def _placed(plan: Plan) -> Plan:
    """The plan with a workspace that belongs to its question."""
    request, config = plan.request, plan.config
    given = request.workspace or config.tuning.workspace.path
    framework = config.model.framework or plan.backend.name
    place = given or default_folder(framework, config.model.name)
    if request.new_run:
        return replace(plan, workspace=workspace_at(place, new_run=True))
    workspace, why = own_workspace(place, plan.question, beside=not given)
    return replace(plan, workspace=workspace, remarks=(*plan.remarks, *filter(None, [why])))


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
