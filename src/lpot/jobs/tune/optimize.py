"""Graph optimization: floats of 16 bits where the CPU has them, a folded graph everywhere."""

from __future__ import annotations

from dataclasses import replace

from lpot.config.rules import float_rules, float_words
from lpot.config.schema import Config
from lpot.core.cpu import this_cpu
from lpot.core.recipe import FP32, OpConfig
from lpot.core.space import OpInfo, TuningSpace, restrict
from lpot.core.strategy import Policy, Proposals, StrategyContext, policy
from lpot.jobs.compress.job import CompressJob, wants_compression
from lpot.jobs.decoder.job import DecoderJob, wants_weight_only
from lpot.jobs.tune.quantize import Job, Request
from lpot.jobs.tune.train import TrainJob, wants_training
from lpot.strategy.mixed_precision import HALVES, auto_mixed_precision

FOLD = "fold"  # the repair that gives the folded graph although nothing in it is INT8


def job_for(request: Request) -> Job:
    """Graph optimization where the configuration speaks of it alone, else quantization."""
    if wants_floats(request.config):
        return OptimizeJob(request)
    if wants_weight_only(request.config):
        return DecoderJob(request)
    if wants_compression(request):
        return CompressJob(request)
    if wants_training(request):
        return TrainJob(request)
    job = Job(request)
    if request.q_func is not None:
        job.add_note(
            f"q_func is not used: `approach: {job.config.quantization.approach}` does not train"
        )
    return job


def wants_floats(config: Config) -> bool:
    """Does a configuration speak of floats of 16 bits, and not of quantization?"""
    return bool(float_words(config)) and "quantization" not in config.model_fields_set


class OptimizeJob(Job):
    """A job whose space holds floats alone; it needs no calibration data."""

    def _restricted(self, samples: tuple[int, ...]) -> TuningSpace:
        words = float_words(self.config)
        ops = {
            key: replace(info, choices=_floats(info, words))
            for key, info in self.capability.ops.items()
        }
        floats = replace(self.capability, ops=ops)
        rules = (*float_rules(self.config), *self.request.rules)
        space = restrict(floats, rules, (0,), self.request.lenient, halves=True)
        repairs = (FOLD,) if self.backend.folds else ()
        notes = (*space.notes, *self._remarks(words, space, bool(repairs)))
        return replace(space, repairs=repairs, notes=notes)

    def _remarks(self, words: tuple[str, ...], space: TuningSpace, folds: bool) -> list[str]:
        asked = [word for word in words if word in HALVES]
        offered = {option.precision for options in space.choices.values() for option in options}
        missing = [word for word in asked if word not in offered]
        rest = "the graph is folded and stays in FP32" if folds else "the model stays in FP32"
        if not missing:
            return [] if asked else [f"only fp32 is allowed: {rest}"]
        cpu = this_cpu()
        if missing == ["bf16"] and not cpu.has("avx512_bf16", "amx_bf16", "bf16"):
            why = f"this CPU ({cpu.name}) has neither avx512_bf16 nor amx_bf16"
            hint = "; FORCE_BF16=1 in the environment converts TensorFlow graphs all the same"
        else:
            why, hint = f"no op of this model can be that with {self.backend.name} here", ""
        return [f"{' and '.join(missing)} can't be had: {why}; {rest}{hint}"]

    def _policy(self) -> Policy:
        return auto_mixed_precision if self.space.choices else _folded_alone

    def why_not(self) -> str:
        return self.space.notes[-1]


@policy(most=lambda space, budget: 1)
def _folded_alone(space: TuningSpace, context: StrategyContext) -> Proposals:
    """The one thing there is to try."""
    yield [space.default()]


def _floats(info: OpInfo, words: tuple[str, ...]) -> tuple[OpConfig, ...]:
    """What the op can be among the floats asked for, the shortest first."""
    halves = (option for option in info.choices if option.is_float and option != FP32)
    return (*(option for option in halves if option.precision in words), FP32)
