"""The interval of the accuracy drop, where the metric kept what it found sample by sample."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lpot.core.resample import Interval, paired_interval
from lpot.core.result import Result
from lpot.report import words

if TYPE_CHECKING:
    from lpot.jobs.tune.quantize import Job


def with_interval(job: Job, result: Result) -> Result:
    """The result with `interval`; pieces of scores recalled or made elsewhere are not known."""
    kept = getattr(job.evaluator, "pieces", None)
    if kept is None or result.best is None or result.interrupted:
        return result
    before, after = kept.get(None), kept.get(result.best.recipe)
    if before is None or after is None:
        return result
    job.listener.phase("asking how sure the drop is")
    found = paired_interval(before, after, job.goal, job.config.tuning.random_seed)
    if found is None:
        return result
    job.add_note(_sentence(job, found))
    return replace(result, interval=found)


def _sentence(job: Job, found: Interval) -> str:
    goal = job.goal
    unit = "{:.3g}" if goal.relative is None else "{:.2%}"
    low, high = (unit.format(value).replace("%", " %") for value in (found.low, found.high))
    text = (
        f"the drop lies between {low} and {high} ({found.confidence:.0%} of {found.draws} paired "
        f"resamplings of {found.samples} samples)"
    )
    bar = goal.absolute if goal.relative is None else goal.relative
    if bar is not None and found.low <= bar < found.high:
        text += f": too few to be sure that {words.allowed(goal)} is held; evaluate more"
    return text
