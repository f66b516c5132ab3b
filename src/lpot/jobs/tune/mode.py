"""What a request asks for: quantization after training, or one of the jobs that differ from it.

A mode is chosen once, in `mode_of`. It says what space there is, which policy searches it, what is
prepared before and made ready after the plan; nothing else asks what kind of job it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lpot.config.rules import float_words, rules, trains
from lpot.config.schema import Config
from lpot.core.backend import Backend, Differentiable
from lpot.core.errors import ConfigError
from lpot.core.model import Model
from lpot.core.repairs import NONE
from lpot.core.space import Capability, TuningSpace, restrict
from lpot.core.strategy import Policy
from lpot.jobs.tune.request import Request
from lpot.jobs.tune.switches import asked_repairs, missing_repairs, switch_rules
from lpot.strategy import get_strategy

if TYPE_CHECKING:
    from lpot.jobs.tune.job import Job
    from lpot.jobs.tune.plan import Plan

Loop = Callable[[Any], Any]


class Mode:
    """Quantization after training, static or dynamic. The others override what they do otherwise.

    In the order of a tuning: `prepared`, `bound`, `check`, `space`, `policy`, `loop`, `question`,
    `facts`, `kind`, `ready`, `trained`.
    """

    calibrates = True  # is a missing or wrong calibration loader an error?
    for_speed = True  # is a model that is slower than FP32 no answer?
    takes_few_bits = True  # may rules ask few bits for the weights of single ops?

    def prepared(self, request: Request) -> Request:
        """The request that is planned: a model in another form, data cut to its size."""
        return request

    def bound(self, request: Request, config: Config, model: Model) -> Request:
        """The same once the model is open."""
        return request

    def check(
        self, request: Request, config: Config, backend: Backend, model: Model, calibrated: bool
    ) -> None:
        """What this mode can't do with backend, model or data is an error now."""

    def space(
        self,
        request: Request,
        config: Config,
        backend: Backend,
        capability: Capability,
        samples: tuple[int, ...],
    ) -> TuningSpace:
        wishes = (*rules(config), *switch_rules(config, capability), *request.rules)
        space = restrict(capability, wishes, samples, request.lenient)
        repairs = asked_repairs(config, backend) if space.choices else NONE
        notes = (*space.notes, *missing_repairs(config, backend))
        return replace(space, repairs=repairs, notes=notes)

    def strategy_name(self, request: Request, config: Config) -> str:
        return config.tuning.strategy.name

    def policy(
        self, request: Request, config: Config, backend: Backend, space: TuningSpace
    ) -> Policy:
        name = request.strategy or self.strategy_name(request, config)
        chosen = get_strategy(name, config.quantization.quant_level)
        if chosen.needs_curvature and not isinstance(backend, Differentiable):
            raise ConfigError(
                f"{name} needs the curvature of the loss, which backend {backend.name} "
                "can't compute: use mse_v2 or basic",
                path="tuning.strategy.name",
            )
        chosen.check(space)
        return chosen

    def loop(self, request: Request, config: Config, backend: Backend) -> Loop | None:
        """The training that comes before the search, if any."""
        return None

    def unused(self, request: Request, config: Config) -> list[str]:
        """What was given, and has no effect."""
        if request.q_func is None:
            return []
        return [f"q_func is not used: `approach: {config.quantization.approach}` does not train"]

    def why_not(self, plan: Plan) -> str:
        """Why nothing can be quantized, by the reasons that concern the most ops."""
        ops = plan.capability.ops.values()
        reasons = Counter(info.reason for info in ops if info.reason)
        kept = sum(info.can_be_low for info in ops)
        if kept:
            reasons["kept in FP32 under your rules"] = kept
        told = "; ".join(f"{count} op(s): {reason}" for reason, count in reasons.most_common(3))
        return f"no op of this model can be quantized ({told or 'it has no ops'})"

    @property
    def kind(self) -> type[Job]:
        from lpot.jobs.tune.job import Job  # which is planned by this module

        return Job

    def question(self, plan: Plan) -> Mapping[str, str]:
        """What the answer depends on besides what it always does."""
        return {}

    def facts(self, plan: Plan) -> Mapping[str, str]:
        """What scores depend on: the question, and what was found in its workspace."""
        return plan.question

    def ready(self, job: Job) -> Job:
        """The job whose search is to run."""
        return job

    def trained(self, job: Job) -> Job:
        """The same once FP32 was scored, with the model that a training has left."""
        return job


# Modes by name. Each room is opened for those alone who ask for it.
MODES: Mapping[str, str] = {
    "weight_only": "lpot.jobs.decoder.job:WeightOnly",
    "floats": "lpot.jobs.tune.optimize:Floats",
    "pruning": "lpot.jobs.compress.job:Pruning",
    "training": "lpot.jobs.tune.train:QuantizationAware",
    "": "lpot.jobs.tune.mode:Mode",
}


def mode_of(request: Request) -> Mode:
    """The one place where a request is asked for its kind; the first that fits it."""
    config = request.config
    pruning = config.pruning
    asked = {
        "weight_only": config.quantization.approach == "weight_only",
        "floats": bool(float_words(config)) and "quantization" not in config.model_fields_set,
        "pruning": pruning is not None and pruning.approach.structured is not None,
        "training": trains(config, request.q_func is not None),
        "": True,
    }
    module, _, name = MODES[next(name for name, fits in asked.items() if fits)].partition(":")
    mode: Mode = getattr(import_module(module), name)()
    return mode
