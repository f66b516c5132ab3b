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
from lpot.core.load import UNKNOWN, Load
from lpot.core.measure import (
    Comparison,
    Timing,
    compare_timings,
    latency,
    take_turns,
)
from lpot.core.results.benchmark import BenchmarkResult, Settings
from lpot.core.results.result import Result
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.runtime.rivals import Rivals, reference, rivals, told
from lpot.jobs.tune.job import Job

logger = logging.getLogger(__name__)

SETTINGS = Settings(seconds=1.5)
LEAST = 0.4  # seconds of a model, where the search took hardly any
LONG_ENOUGH = 1.0  # timed seconds: what was measured for less sends no model back
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
        settings = settings_after(result)
        measured = _apart(job, result, inputs, settings)
        first = measured.models[1].comparison
        hasty = settings.seconds < LONG_ENOUGH <= SETTINGS.seconds
        if hasty and first is not None and first.verdict == "slower":
            measured = _apart(job, result, inputs, replace(settings, seconds=LONG_ENOUGH))
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


def is_no_answer(job: Job, result: Result) -> bool:
    """Is it surely slower than FP32, where low precision is for speed?"""
    long_enough = SETTINGS.seconds >= LONG_ENOUGH
    return result.slower is not None and job.mode.for_speed and long_enough


def _apart(job: Job, result: Result, inputs: Inputs | None, settings: Settings) -> BenchmarkResult:
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
            settings=settings,
            progress=lambda done, total: job.listener.step(done),
            profile_seconds=min(PROFILE_SECONDS, 2 * settings.seconds),
        )
    for text in told(job, others, measured):
        job.add_note(text)
    return measured


def _together(job: Job, result: Result, inputs: Inputs) -> Comparison:
    """In turns in this process: for models that no other process can open from their file."""
    models = (job.model, result.model)
    taken: tuple[list[Timing], list[Timing]] = ([], [])

    def run(who: int) -> Load:
        timing = latency(
            lambda: job.backend.run(models[who], inputs),
            warmup=1,
            seconds=SETTINGS.seconds / SETTINGS.turns,
        )
        taken[who].append(timing)
        return timing.loads[0] if timing.loads else UNKNOWN

    def settle(who: int, at: int, better: bool) -> None:
        latest = taken[who].pop()
        taken[who][at] = latest if better else taken[who][at]

    job.listener.phase(PHASE, 2 * SETTINGS.turns)
    take_turns(2, SETTINGS.turns, run, settle, job.listener.step)
    fp32, best = (
        Timing(tuple(t.samples for t in rounds), loads=sum((t.loads for t in rounds), ()))
        for rounds in taken
    )
    return compare_timings(fp32, best)


def _judged(job: Job, result: Result, comparison: Comparison) -> Result:
    faster = {"faster": True, "slower": False}.get(comparison.verdict)
    if comparison.busy:
        job.add_note(
            f"warning: the machine was busy while speed was measured: others took up to "
            f"{comparison.taken:.0%} of the cores, and went on when disturbed rounds were "
            "repeated. The ratio is that of CPU time; measure again on a quiet machine "
            "(`lpot benchmark`)"
        )
    low, high = comparison.low, comparison.high
    spread = f"{comparison.ratio:.2f} times its speed, between {low:.2f} and {high:.2f}"
    result = replace(result, speed=comparison.ratio, faster=faster, timed=comparison)
    if faster is False and not is_no_answer(job, result):  # else it says so itself
        job.add_note(
            f"the quantized model is slower than FP32 here ({spread}): measure with the batch size "
            "you will use (`lpot benchmark`)"
        )
    elif faster is None:
        job.add_note(
            f"no significant difference in speed from FP32 here ({spread}): measure again on a "
            "quiet machine and with the batch size you will use (`lpot benchmark`)"
        )
    return result
