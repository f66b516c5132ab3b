"""The figures a report rests on, each taken from one place: the measurement at the end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lpot.core import words
from lpot.core.goal import Goal
from lpot.core.profile import Profile
from lpot.core.recipe import OpKey
from lpot.core.report import TimeRow
from lpot.core.resample import Interval
from lpot.core.result import Result
from lpot.core.tune import guarded
from lpot.jobs.tune.insight import Insight
from lpot.jobs.tune.job import Job

CONVERSIONS = "conversions"
MOST_KINDS = 8
LARGE = 512 << 20  # bytes of weights
LONG_RANKING = 120  # ops: ranking more of them is not worth the wait where no search asked for it


def proof(job: Job, result: Result) -> dict[str, Any]:
    """What report.json has beyond result.json."""
    return {
        "best": None if result.best is None else result.best.number,
        "speed_range": _speed_range(result),
        "measured": _measured(result),
        **lost(job.goal, result),
        "path": None if result.path is None else str(result.path),
        "usage": "" if result.path is None else job.backend.usage(result.model, result.path),
    }


def lost(goal: Goal, result: Result) -> dict[str, Any]:
    """The drop in the goal's own unit, with its interval where there is one."""
    if result.baseline is None or result.accuracy is None:
        return {}
    found = result.interval
    return {
        "drop": words.drop(goal, result.accuracy, result.baseline.accuracy),
        "allowed": words.allowed(goal),
        "drop_range": None if found is None else _range(goal, found),
    }


def _range(goal: Goal, found: Interval) -> str:
    if goal.relative is None:
        told = f"{found.low:.3g} to {found.high:.3g}"
    else:
        told = f"{found.low * 100:.2f} to {found.high * 100:.2f} %"
    return told.replace("-", "−")


def _speed_range(result: Result) -> tuple[float, float] | None:
    models = () if result.benchmark is None else result.benchmark.models
    found = None if len(models) < 2 else models[1].comparison
    return None if found is None else (found.low, found.high)


def _measured(result: Result) -> dict[str, Any] | None:
    """Both models as they were timed in turns, and on what."""
    bench = result.benchmark
    timings = [] if bench is None else [model.timing for model in bench.models[:2]]
    if bench is None or len(timings) < 2 or None in timings:
        return None
    before, after = (timing.median for timing in timings if timing is not None)
    found = bench.models[1].comparison
    return {
        "fp32": before,
        "best": after,
        "memory": [model.peak_memory for model in bench.models[:2]],
        "batch": bench.batch_size,
        "threads": bench.settings.threads or bench.settings.share(bench.cpu),
        "cpu": bench.cpu.name,
        "confidence": None if found is None else found.confidence,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def times(job: Job, profile: Profile) -> tuple[TimeRow, ...]:
    """Seconds by kind of op in both models, the costliest first; small ones together."""
    kinds = {key.name: key.kind for key in job.capability.ops}
    sums: dict[str, tuple[float, float]] = {}
    for row in profile.rows:
        kind = CONVERSIONS if row.role == "convert" else kinds.get(row.name, row.kind)
        before, after = sums.get(kind, (0.0, 0.0))
        sums[kind] = (before + (row.before or 0.0), after + (row.after or 0.0))
    rows = [TimeRow(kind, *both) for kind, both in sums.items()]
    rows.sort(key=lambda row: -max(row.fp32, row.best))
    rest = rows[MOST_KINDS:]
    if not rest:
        return tuple(rows)
    other = TimeRow("other", sum(r.fp32 for r in rest), sum(r.best for r in rest))
    return (*rows[:MOST_KINDS], other)


def alone(job: Job, result: Result, insight: Insight) -> dict[OpKey, float]:
    """Sensitivity with one op at a time in low precision, also where no search asked for it.

    Without it a report could only show errors as they add up along the net, which makes the last
    ops look guilty.
    """
    quick = 0 < len(result.recipe.low_ops) <= LONG_RANKING and job.model.nbytes < LARGE
    # Who wants no speed measured wants the answer at once.
    wanted = quick and not result.interrupted and job.request.measure_speed
    if insight.sensitivity or not wanted:
        return insight.sensitivity
    found = guarded(insight.ranking)
    return {} if isinstance(found, Exception) else found
