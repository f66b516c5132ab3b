"""What makes a result doubtful: a gain too good to be true, failures, a drop that is not sure."""

from __future__ import annotations

import math
from dataclasses import replace

from lpot.core import words
from lpot.core.backend import Trainable
from lpot.core.numerics.resample import Interval
from lpot.core.recipe import OpKey
from lpot.core.results.result import Result
from lpot.core.trial import State
from lpot.jobs.tune.insight import Insight
from lpot.jobs.tune.job import Job
from lpot.strategy.mixed_precision import HALVES


def warn_about_scores(job: Job, result: Result) -> None:
    if result.baseline is None:
        return
    failed = [trial for trial in result.trials if trial.state is State.FAILED]
    if failed:
        job.add_note(
            f"{len(failed)} of {len(result.trials)} trial(s) failed, the last with: "
            f"{failed[-1].error}"
        )
    _warn_about_gain(job, result)


def _warn_about_gain(job: Job, result: Result) -> None:
    if result.baseline is None or result.accuracy is None:
        return
    goal, before, after = job.goal, result.baseline.accuracy, result.accuracy
    if not goal.is_implausible(after, before):
        return
    other = "a loss, or an error" if goal.higher_is_better else "an accuracy"
    word = "false" if goal.higher_is_better else "true"
    job.add_note(
        f"warning: the score goes from {before:.6g} in FP32 to {after:.6g}: quantization does not "
        f"gain that much. If the score is {other}, set "
        f"`accuracy_criterion: {{higher_is_better: {word}}}`; the verdict is wrong without it"
    )


# -- What is said when the bar was not reached: which ops are to blame, and what to try next.


WORST = 5  # ops named as those to blame
LIMITS = ("timeout", "max_trials", "performance_only")  # how a limit's reason to stop begins


def shortfall(job: Job, result: Result, insight: Insight) -> str:
    """For a result that has a best trial, which missed the bar."""
    assert result.best is not None and result.best.score and result.baseline is not None
    bar = job.goal.bar(result.baseline.accuracy)
    reached = job.goal.is_met(result.best.score.accuracy, result.baseline.accuracy)
    word = "proven" if reached else "reached"
    best = words.scored(result.best.score, job.goal)
    said = [f"the bar of {bar:.6g} was not {word}; the best is {best}"]
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


# -- How sure the drop is: its interval where single samples are known, a word where they are not.


def with_interval(job: Job, result: Result) -> Result:
    """The result with `interval`; pieces of scores that were made elsewhere are not known."""
    kept = None if job.evaluator is None else job.evaluator.pieces
    if result.best is None or result.interrupted:
        return result
    job.listener.phase("estimating the uncertainty of the drop")
    seed = job.config.tuning.random_seed
    found = None if kept is None else kept.interval(result.best.recipe, job.goal, seed)
    if found is None:
        if kept is None or kept.get(None) is None or kept.get(result.best.recipe) is None:
            _say_unknown(job, result)
        return result
    job.add_note(_sentence(job, found))
    return replace(result, interval=found)


def _say_unknown(job: Job, result: Result) -> None:
    if job.request.eval_func is None or result.baseline is None or result.baseline.samples:
        return
    job.add_note(
        f"the uncertainty of the drop is unknown: {job.request.door.evaluate} returns one number. "
        "Yield a score per sample to get bounds (docs/evaluation.md)"
    )


def _sentence(job: Job, found: Interval) -> str:
    goal = job.goal
    unit = "{:.3g}" if goal.relative is None else "{:.2%}"
    low, high = (unit.format(value).replace("%", " %") for value in (found.low, found.high))
    how = f"{found.draws} paired resamplings of" if found.draws else "exact paired bounds of"
    text = (
        f"the drop lies between {low} and {high} (each end with {found.confidence:.0%} confidence, "
        f"by {how} {found.samples} samples)"
    )
    if found.holds(goal.allows) is not None:
        return text
    text += f": these samples do not prove whether the loss stays within {words.allowed(goal)}"
    if found.needed is None:
        return (
            f"{text}. These data can't decide it; the bound that they prove is a loss of at most "
            f"{high}"
        )
    return f"{text}; about {found.needed} would"
