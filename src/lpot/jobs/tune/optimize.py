"""Graph optimization: floats of 16 bits where the CPU has them, a folded graph everywhere."""

from __future__ import annotations

from dataclasses import replace

from lpot.config.rules import float_rules, float_words
from lpot.config.schema import Config
from lpot.core.backend import Backend
from lpot.core.cpu import this_cpu
from lpot.core.recipe import FP32, OpConfig, TensorConfig
from lpot.core.repairs import Repairs
from lpot.core.space import Capability, OpInfo, TuningSpace, restrict
from lpot.core.strategy import Policy, Proposals, StrategyContext, policy
from lpot.jobs.tune.mode import Mode
from lpot.jobs.tune.plan import Plan
from lpot.jobs.tune.request import Request
from lpot.strategy.mixed_precision import HALVES, auto_mixed_precision

FP16 = OpConfig(TensorConfig("fp16"), None, "float")


class Floats(Mode):
    """Graph optimization: no quantization, no calibration data, no training."""

    takes_few_bits = False

    def space(
        self,
        request: Request,
        config: Config,
        backend: Backend,
        capability: Capability,
        samples: tuple[int, ...],
    ) -> TuningSpace:
        """A space of floats alone."""
        words = float_words(config)
        stored = _stored(backend, capability, words)
        ops = {
            key: replace(info, choices=_floats(info, words, stored))
            for key, info in capability.ops.items()
        }
        wishes = (*float_rules(config), *request.rules)
        offered = replace(capability, ops=ops)
        space = restrict(offered, wishes, (0,), request.lenient, halves=True)
        notes = (*space.notes, *_remarks(words, space, backend, stored))
        return replace(space, repairs=Repairs(folding=backend.folds), notes=notes)

    def policy(
        self, request: Request, config: Config, backend: Backend, space: TuningSpace
    ) -> Policy:
        return auto_mixed_precision if space.choices else _folded_alone

    def unused(self, request: Request, config: Config) -> list[str]:
        return []

    def why_not(self, plan: Plan) -> str:
        return plan.space.notes[-1]


def _stored(backend: Backend, capability: Capability, words: tuple[str, ...]) -> bool:
    """Are weights to be kept as float16: asked for, or in place of a bf16 that is not there?"""
    if not backend.stores_halves:
        return False
    options = [option for info in capability.ops.values() for option in info.choices]
    no_bf16 = not any(option.precision == "bf16" for option in options)
    return "fp16" in words or ("bf16" in words and no_bf16)


def _remarks(
    words: tuple[str, ...], space: TuningSpace, backend: Backend, stored: bool
) -> list[str]:
    asked = [word for word in words if word in HALVES]
    offered = {option.precision for options in space.choices.values() for option in options}
    missing = [word for word in asked if word not in offered]
    rest = "the graph is folded and stays in FP32" if backend.folds else "the model stays in FP32"
    if stored and "fp16" in offered and "bf16" not in offered:
        rest = (
            "weights are stored as fp16 and computed in FP32, which halves the file and "
            f"{backend.stores_halves}"
        )
        if not missing:
            return [rest]
    if not missing:
        return [] if asked else [f"only fp32 is allowed: {rest}"]
    cpu = this_cpu()
    why, hint = f"no op of this model supports it with {backend.name} here", ""
    if missing == ["bf16"] and not cpu.has("avx512_bf16", "amx_bf16", "bf16"):
        why = f"this CPU ({cpu.name}) has neither avx512_bf16 nor amx_bf16"
        if backend.name == "tensorflow":
            hint = "; FORCE_BF16=1 in the environment converts the graph anyway"
    verb = "is" if len(missing) == 1 else "are"
    return [f"{' and '.join(missing)} {verb} not available: {why}; {rest}{hint}"]


@policy(most=lambda space, budget: 1)
def _folded_alone(space: TuningSpace, context: StrategyContext) -> Proposals:
    """The one thing there is to try."""
    yield [space.default()]


def _floats(info: OpInfo, words: tuple[str, ...], stored: bool) -> tuple[OpConfig, ...]:
    """What the op can be among the floats asked for, the shortest first."""
    halves = [option for option in info.choices if option.is_float and option != FP32]
    found = [option for option in halves if option.precision in words]
    if stored and any(option.weight is not None for option in info.choices):
        found.append(FP16)
    return (*found, FP32)
