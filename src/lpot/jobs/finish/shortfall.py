"""What is said when the bar was not reached: which ops are to blame, and what to try next."""

from __future__ import annotations

import math

from lpot.core.backend import Trainable
from lpot.core.recipe import OpKey
from lpot.core.result import Result
from lpot.jobs.tune.insight import Insight
from lpot.jobs.tune.job import Job
from lpot.strategy.mixed_precision import HALVES

WORST = 5  # ops named as those to blame
LIMITS = ("timeout", "max_trials", "performance_only")  # how a limit's reason to stop begins


def shortfall(job: Job, result: Result, insight: Insight) -> str:
    """For a result that has a best trial, which missed the bar."""
    assert result.best is not None and result.baseline is not None
    bar = job.goal.bar(result.baseline.accuracy)
    said = [f"the bar of {bar:.6g} was not reached; the best is {result.best.accuracy:.6g}"]
    forbidden = [key.name for key in job.space.choices if job.space.float_config(key) is None]
    if forbidden:
        said.append(
            f"{len(forbidden)} op(s) may not stay in FP32 under your rules: {forbidden[0]} …"
        )
    blamed = _blamed(job, insight)
    if blamed:
        said.append(f"The ops that change the outputs most in low precision: {blamed}")
    *steps, last = _next_steps(job, result)
    said.append(f"Try {', '.join(steps)}, or {last}" if steps else f"Try {last}")
    return ". ".join(said)


def _blamed(job: Job, insight: Insight) -> str:
    """The most sensitive ops, with their shares of the error that single ops make."""
    found = insight.sensitivity
    if not found and not job.watch.time_is_up:
        # A strategy that goes by trials alone has asked for no ranking.
        found = insight.ranking()
    known = {key: math.inf if math.isnan(value) else value for key, value in found.items()}
    worst = sorted((key for key in known if known[key] > 0), key=lambda key: -known[key])
    return ", ".join(_with_share(key, known) for key in worst[:WORST])


def _with_share(key: OpKey, errors: dict[OpKey, float]) -> str:
    total = sum(errors.values())
    if not math.isfinite(total):
        return f"{key.name} (its outputs are not numbers)" if errors[key] == math.inf else key.name
    return f"{key.name} ({errors[key] / total:.0%})"


def _next_steps(job: Job, result: Result) -> list[str]:
    steps = []
    limited = result.stopped.startswith(LIMITS)
    if job.watch.limits.performance_only:
        steps.append("a search (`performance_only: false`)")
    elif limited:
        steps.append("a larger max_trials or timeout")
    if job.calibration is not None:
        steps.append("more calibration data")
    if not limited and job.config.tuning.strategy.name in ("basic", "auto"):
        steps.append("`strategy: tpe`, which tries other ranges as well")
    options = (option for info in job.capability.ops.values() for option in info.choices)
    if any(option.precision in HALVES for option in options):
        steps.append("`strategy: auto_mixed_precision` for 16-bit floats")
    if isinstance(job.backend, Trainable) and job.request.q_func is None:
        steps.append("quantization-aware training (`train=`)")
    allows = job.goal.relative if job.goal.relative is not None else job.goal.absolute
    return [
        *steps,
        "a wider bar" if allows else "a bar that allows some loss: this one allows none",
    ]
