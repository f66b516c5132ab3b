"""The proof of speed at the end of a tuning: FP32 and the best, timed in turns."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lpot.core.batch import Inputs
from lpot.core.cpu import give_back
from lpot.core.errors import LpotError
from lpot.core.measure import Comparison, compare, latency, turns
from lpot.core.results.benchmark import BenchmarkResult, Settings
from lpot.core.results.result import Result
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.runtime.rivals import Rivals, reference, rivals, told
from lpot.jobs.tune.job import Job

logger = logging.getLogger(__name__)

SETTINGS = Settings(seconds=1.5)
LEAST = 0.4  # seconds of a model, where the search took hardly any
PROFILE_SECONDS = 3.0  # for the times of single ops, at most
RIVALS = True  # are other runtimes timed, too?
PHASE = "measuring FP32 against the best"


def settings_after(result: Result) -> Settings:
    """Shorter after a quick search: the proof is not to cost more than what it proves."""
    searched = sum(trial.seconds for trial in result.trials)
    return replace(SETTINGS, seconds=min(SETTINGS.seconds, max(LEAST, searched / 4)))


def with_speed(job: Job, result: Result) -> Result:
    """The result with `speed` and `faster`, where they can be had."""
    if not job.request.measure_speed or result.interrupted or result.path is None:
        return result
    inputs = job.timing_inputs
    known = job.model.inputs is not None
    if not known and inputs is None:
        return result
    try:
        measured = _apart(job, result, inputs)
        if measured.settings.turns < SETTINGS.turns:
            job.add_note(
                "there was not enough memory for FP32 and the quantized model at once: they were "
                f"timed in fresh processes, in {measured.settings.turns} rounds"
            )
        other = measured.models[1]
        if other.comparison is not None:
            return _judged(job, replace(result, benchmark=measured), other.comparison)
        error: Exception | str | None = other.error
    except (LpotError, OSError) as failure:
        error = failure
    if known or inputs is None:
        job.add_note(f"speed was not measured: {error}")
        return result
    logger.info("no other process can open the model (%s): it is timed in this one", error)
    try:
        return _judged(job, result, _together(job, result, inputs))
    except LpotError as failure:
        job.add_note(f"speed was not measured: {failure}")
    return result


def _apart(job: Job, result: Result, inputs: Inputs | None) -> BenchmarkResult:
    """Each in a process of its own, the idle ones stopped; other runtimes beside them."""
    assert result.path is not None
    with TemporaryDirectory(prefix="lpot-speed-") as name:
        folder = Path(name)
        others = rivals(job, result, inputs, folder) if RIVALS else Rivals()
        fp32 = reference(job, folder / "fp32")
        job.model.close()
        result.model.close()
        give_back()  # the processes need it more
        # A file that does not say what to compute needs the module that goes with it.
        alone = result.model.holds_architecture
        by_place = others.contestants or fp32.framework != result.model.framework
        feeds: list[Any] | None = None if inputs is None else [inputs]
        if by_place and isinstance(inputs, Mapping):
            feeds = [tuple(inputs.values())]  # runtimes may name them otherwise
        contestants = [fp32, result.path if alone else result.model, *others.contestants]
        job.listener.phase(PHASE, len(contestants) * SETTINGS.turns)
        measured = benchmark(
            contestants,
            feeds=feeds,
            settings=settings_after(result),
            progress=lambda done, total: job.listener.step(done),
            profile_seconds=min(PROFILE_SECONDS, 2 * settings_after(result).seconds),
        )
    for text in told(job, others, measured):
        job.add_note(text)
    return measured


def _together(job: Job, result: Result, inputs: Inputs) -> Comparison:
    """In turns in this process: for models that no other process can open from their file."""
    models = (job.model, result.model)
    rounds: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
    job.listener.phase(PHASE, 2 * SETTINGS.turns)
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
            f"no significant difference in speed from FP32 here ({spread}): measure again on a "
            "quiet machine and with the batch size you will use (`lpot benchmark`)"
        )
    return replace(result, speed=comparison.ratio, faster=faster)
