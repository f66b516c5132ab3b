"""How sure the drop is: its interval where single samples are known, a word where they are not."""

from __future__ import annotations

from dataclasses import replace

from lpot.core import words
from lpot.core.resample import Interval, paired_interval
from lpot.core.result import Result
from lpot.jobs.tune.job import Job


def with_interval(job: Job, result: Result) -> Result:
    """The result with `interval`; pieces of scores recalled or made elsewhere are not known."""
    kept = None if job.evaluator is None else job.evaluator.pieces
    if result.best is None or result.interrupted:
        return result
    before = None if kept is None else kept.get(None)
    after = None if kept is None else kept.get(result.best.recipe)
    if before is None or after is None:
        _say_unknown(job, result)
        return result
    job.listener.phase("estimating the uncertainty of the drop")
    found = paired_interval(before, after, job.goal, job.config.tuning.random_seed)
    if found is None:
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
        return f"{text}, nor would many more"
    return f"{text}; about {_round(found.needed)} would"


def _round(count: int) -> int:
    """To two figures: it is an estimate."""
    digits = len(str(count)) - 2
    return count if digits <= 0 else -(-count // 10**digits) * 10**digits
