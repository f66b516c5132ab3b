"""Everything that is decided before an evaluation is spent: one frozen value, made once."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
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
from lpot.core.backend import Approach, Backend, Differentiable
from lpot.core.calibration import Calibration
from lpot.core.door import Door
from lpot.core.errors import CalibrationError, ConfigError, DataError
from lpot.core.goal import Goal, Objectives
from lpot.core.limits import Limits
from lpot.core.loader import Loader
from lpot.core.model import Model
from lpot.core.repairs import NONE
from lpot.core.space import Capability, TuningSpace, restrict
from lpot.core.strategy import Policy
from lpot.core.workspace import Workspace, default_folder
from lpot.jobs.compress.asked import check_compression, wants_compression
from lpot.jobs.decoder.prepare import bound, strategy_name, wants_weight_only
from lpot.jobs.settings import with_name
from lpot.jobs.storage.workspace import workspace_at
from lpot.jobs.tune.evaluation import calibration_loader
from lpot.jobs.tune.loop import Loop, training_loop, wants_training
from lpot.jobs.tune.optimize import float_policy, float_space, wants_floats
from lpot.jobs.tune.request import Request
from lpot.jobs.tune.switches import asked_repairs, missing_repairs, switch_rules
from lpot.strategy import get_strategy
from lpot.version import VERSION


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """What will be done with which model, and to what end."""

    request: Request
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
        return self.config.model.framework or self.backend.name

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

    def comes_to_nothing(self) -> bool:
        """Is even the recipe with the most in low precision the FP32 model?"""
        if not self.space.choices:
            return not self.space.repairs
        recipe = self.space.default()
        return bool(recipe.low_ops) and not self.backend.outcome(self.source, recipe).low_ops

    def why_not(self) -> str:
        """Why nothing can be quantized, by the reasons that concern the most ops."""
        if wants_floats(self.config):
            return self.space.notes[-1]
        reasons = Counter(info.reason for info in self.capability.ops.values() if info.reason)
        kept = sum(info.can_be_low for info in self.capability.ops.values())
        if kept:
            reasons["kept in FP32 under your rules"] = kept
        told = "; ".join(f"{count} op(s): {reason}" for reason, count in reasons.most_common(3))
        return f"no op of this model can be quantized ({told or 'it has no ops'})"


def compresses(config: Config) -> bool:
    return wants_compression(config) and not (wants_floats(config) or wants_weight_only(config))


def make_plan(request: Request) -> Plan:
    """Load, inspect and check; whatever is wrong is an error now, not after an hour."""
    config = with_name(request.config, request.model)
    check_work(config)
    framework = config.model.framework
    way = approach(config) or implied_approach(framework) or "static"
    found = get_backend(request.backend or framework or detect(request.model))
    loader = _loader(request)
    backend = _backend(request, config, found, way, loader is not None)
    request.listener.phase("loading the model")
    sample = (lambda: None) if loader is None else loader.peek
    model = backend.load(request.model, replace(model_spec(config), sample=sample))
    if wants_weight_only(config):
        request = bound(request, config, model)
        loader = _loader(request)
    fingerprint = model.fingerprint()
    calibration = _calibration(loader, model)
    capability = backend.inspect(model, way, config.quantization.target)
    batch_size = 1 if calibration is None else calibration.batch_size
    space = _space(request, config, backend, capability, sampling_sizes(config, batch_size))
    other = wants_floats(config) or wants_weight_only(config) or wants_compression(config)
    trains = wants_training(request) and not other
    if compresses(config):
        check_compression(request, config, backend, model, calibration is not None)
    if calibration is not None or not trains:  # the batches that a training uses will do
        _check_calibration(request.door, backend, model, calibration, space)
    return Plan(
        request=request,
        config=config,
        backend=backend,
        source=model,
        fingerprint_of_model=fingerprint,
        approach=way,
        calibration=calibration,
        capability=capability,
        space=space,
        policy=_policy(request, config, backend, space),
        goal=goal(config),
        objectives=objectives(config),
        limits=limits(config),
        workspace=_workspace(request, config, framework or backend.name),
        loop=training_loop(request, config, backend) if trains else None,
        remarks=(
            *unavailable(config),
            *capability.notes,
            *space.notes,
            *([] if trains else _unused(request, config)),
        ),
    )


def _backend(
    request: Request, config: Config, found: Backend, way: Approach, calibrated: bool
) -> Backend:
    """The backend that serves the approach, and few bits for the ops that rules ask them for."""
    settings = {**weight_settings(config), "calibrated": calibrated}
    backend = found.for_approach(way, settings)
    few = [rule for rule in (*rules(config), *request.rules) if rule.asks_few_bits]
    if not few or wants_floats(config):
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
    request: Request,
    config: Config,
    backend: Backend,
    capability: Capability,
    samples: tuple[int, ...],
) -> TuningSpace:
    try:
        if wants_floats(config):
            return float_space(config, backend, capability, request.rules, request.lenient)
        wishes = (*rules(config), *switch_rules(config, capability), *request.rules)
        space = restrict(capability, wishes, samples, request.lenient)
    except ConfigError as error:
        raise ConfigError(str(error), where=config.where(error.path)) from None
    repairs = asked_repairs(config, backend) if space.choices else NONE
    notes = (*space.notes, *missing_repairs(config, backend))
    return replace(space, repairs=repairs, notes=notes)


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


def _policy(request: Request, config: Config, backend: Backend, space: TuningSpace) -> Policy:
    if wants_floats(config):
        return float_policy(space)
    name = config.tuning.strategy.name
    if wants_weight_only(config):
        name = strategy_name(request, config)
    chosen = get_strategy(request.strategy or name, config.quantization.quant_level)
    if chosen.needs_curvature and not isinstance(backend, Differentiable):
        raise ConfigError(
            f"{name} needs the curvature of the loss, which backend {backend.name} "
            "can't compute: use mse_v2 or basic",
            path="tuning.strategy.name",
        )
    chosen.check(space)
    return chosen


def _workspace(request: Request, config: Config, framework: str) -> Workspace:
    given = request.workspace or config.tuning.workspace.path
    return workspace_at(given or default_folder(framework, config.model.name), request.new_run)


def _unused(request: Request, config: Config) -> list[str]:
    if request.q_func is None or wants_floats(config):
        return []
    return [f"q_func is not used: `approach: {config.quantization.approach}` does not train"]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
