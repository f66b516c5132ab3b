"""The winner once more, on data that had no part in choosing it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lpot.core.blame import raised
from lpot.core.errors import EvaluationError, LpotError
from lpot.core.evaluation.evaluate import Evaluator, FunctionEvaluator
from lpot.core.results.result import HeldOut, Result
from lpot.core.tune import guarded
from lpot.jobs.tune.evaluation import ACCURACY, make_evaluator, yaml_loader
from lpot.jobs.tune.job import Job

PLACE = f"{ACCURACY}.held_out"


def held_out_evaluator(job: Job) -> Evaluator | None:
    """What scores on held-out data: a function of the model, or a loader beside the metric."""
    given: Any = job.request.held_out
    section = job.config.evaluation.accuracy.held_out
    if given is None and section is not None:
        given = yaml_loader(job.config, section, PLACE)
    if given is None:
        return None
    if callable(given) and not hasattr(given, "__iter__"):
        return FunctionEvaluator(given, job.listener, "held_out")
    made = make_evaluator(replace(job.request, eval_func=None, eval_loader=given), job.source)
    if made is None:
        raise EvaluationError(
            "held-out data was given as a loader, but there is no metric to score it with: give "
            "held_out as a function of the model, or name a metric"
        )
    return made


def with_held_out(job: Job, result: Result) -> Result:
    """The result with `held_out`; a winner that does not hold there is said, not taken back."""
    evaluator = job.held_out
    if evaluator is None or result.best is None or result.interrupted:
        return result
    job.listener.phase("confirming on held-out data")
    found = guarded(lambda: _scores(job, result, evaluator))
    if isinstance(found, Exception):
        if isinstance(found, LpotError):
            job.add_note(f"warning: the winner could not be confirmed on held-out data: {found}")
            return result
        raise EvaluationError(
            f"on held-out data: {evaluator.name} raised {raised(found)}"
        ) from found
    fp32, low = found
    met = job.goal.is_met(low, fp32)
    told = f"on held-out data FP32 scores {fp32:.6g} and the best {low:.6g}"
    if met:
        job.add_note(f"{told}: the bar is met there too")
    else:
        job.add_note(
            f"warning: {told}, below the bar of {job.goal.bar(fp32):.6g}: this may be "
            "selection bias; evaluate more samples while tuning"
        )
    return replace(result, held_out=HeldOut(fp32, low, met))


def _scores(job: Job, result: Result, evaluator: Evaluator) -> tuple[float, float]:
    fp32 = evaluator(job.source).accuracy
    job.source.close()
    return fp32, evaluator(result.model).accuracy
