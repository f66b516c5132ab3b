"""The proof of speed at the end of a tuning: FP32 and the best, timed in turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lpot.core.batch import Inputs
from lpot.core.benchmark import BenchmarkResult, Settings
from lpot.core.errors import LpotError
from lpot.core.measure import Comparison, compare, latency, turns
from lpot.core.result import Result
from lpot.jobs.benchmark import benchmark

if TYPE_CHECKING:
    from lpot.jobs.quantize import Job

SETTINGS = Settings(seconds=1.5)
PHASE = "measuring FP32 against the best"


def with_speed(job: Job, result: Result) -> Result:
    """The result with `speed` and `faster`, where they can be had."""
    if not job.request.measure_speed or result.interrupted or result.path is None:
        return result
    job.listener.phase(PHASE, 2 * SETTINGS.turns)
    inputs = None if job.calibration is None else job.calibration.first.inputs
    try:
        if job.model.inputs is not None:
            return _apart(job, result, inputs)
        if inputs is not None:
            return _judged(job, result, _together(job, result, inputs))
    except (LpotError, OSError) as error:
        job.add_note(f"speed was not measured: {error}")
    return result


def _apart(job: Job, result: Result, inputs: Inputs | None) -> Result:
    """Each in a process of its own, the idle one stopped."""
    assert result.path is not None
    job.model.close()
    result.model.close()
    names = job.model.input_names or ()
    by_name = (
        inputs
        if inputs is None or isinstance(inputs, dict)
        else dict(zip(names, inputs, strict=True))
    )
    measured: BenchmarkResult = benchmark(
        [job.model, result.path],
        feeds=by_name,
        settings=SETTINGS,
        progress=lambda done, total: job.listener.step(done),
    )
    other = measured.models[1]
    if other.comparison is None:
        job.add_note(f"speed was not measured: {other.error}")
        return result
    return _judged(job, replace(result, benchmark=measured), other.comparison)


def _together(job: Job, result: Result, inputs: Inputs) -> Comparison:
    """In turns in this process: for models that no other process can open from their file."""
    models = (job.model, result.model)
    rounds: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
    for done, index in enumerate(turns(2, SETTINGS.turns), start=1):
        model = models[index]
        timing = latency(
            lambda model=model: job.backend.run(model, inputs),  # type: ignore[misc]
            warmup=1,
            seconds=SETTINGS.seconds / SETTINGS.turns,
        )
        rounds[index].append(tuple(timing.samples))
        job.listener.step(done)
    return compare(*rounds)


def _judged(job: Job, result: Result, comparison: Comparison) -> Result:
    faster = {"faster": True, "slower": False}.get(comparison.verdict)
    low, high = comparison.low, comparison.high
    spread = f"{comparison.ratio:.2f} times its speed, between {low:.2f} and {high:.2f}"
    if faster is False:
        job.add_note(
            f"the quantized model is slower than FP32 here ({spread}): stay with FP32, or measure "
            "with the batch size you will use (`lpot benchmark`)"
        )
    elif faster is None:
        job.add_note(
            f"no significant difference in speed to FP32 here ({spread}): measure again on a quiet "
            "machine and with the batch size you will use (`lpot benchmark`)"
        )
    return replace(result, speed=comparison.ratio, faster=faster)
