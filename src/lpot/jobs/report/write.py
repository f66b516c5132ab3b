"""Putting a report together and on disk: report.json for machines, report.html for people."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML

from lpot.config.identity import public
from lpot.core import words
from lpot.core.backend import Traced
from lpot.core.cpu import this_cpu
from lpot.core.files.card import write_text
from lpot.core.goal import Goal
from lpot.core.numerics.resample import Interval
from lpot.core.recipe import OpKey
from lpot.core.results.profile import Profile, ProfileRow
from lpot.core.results.report import GraphNode, Report, TimeRow, finite, op_rows
from lpot.core.results.result import Result
from lpot.core.results.tensors import Contrast
from lpot.core.tune import guarded
from lpot.jobs.inspect_tensors import look
from lpot.jobs.tune.evaluation import plain
from lpot.jobs.tune.insight import Insight
from lpot.jobs.tune.job import Job
from lpot.report.html import page
from lpot.version import VERSION

Value = TypeVar("Value")

logger = logging.getLogger(__name__)

DATA, PAGE = "report.json", "report.html"
LOOKED_AT = 1000  # ops whose tensors are compared
SHOWN_RANGES = 8  # ops whose histograms are kept
HEAVY = 2 << 30  # bytes of weights: a second and third session of such a model would hurt
SMALL_GRAPH = 60  # nodes of the FP32 graph that are still worth drawing
DRAWN_GRAPH = 240  # nodes of the other one, which has Q and DQ


def make_report(job: Job, result: Result, insight: Insight) -> Report:
    baseline = result.baseline
    chosen = {key: config.precision for key, config in result.recipe.ops.items()}
    found, profile = _contrasts(job, result), _profile(result)
    timed = _by_key(job, profile)
    outputs = sorted((c for c in found if c.what == "output"), key=lambda c: c.sqnr)
    return Report(
        name=job.config.model.name,
        framework=job.framework_word,
        result={**result.to_json(), **proof(job, result)},
        bar=None if baseline is None else job.goal.bar(baseline.accuracy),
        trials=result.rows,
        ops=op_rows(
            job.capability,
            result.recipe,
            result.model.precisions or chosen,
            alone(job, result, insight),
            found,
            {key: (row.before, row.after) for key, row in timed.items()},
            {key: row.reason for key, row in timed.items()},
        ),
        profile=profile.summary() if profile.rows else "",
        times=times(job, profile),
        environment=_environment(job, result),
        config=_yaml(job),
        higher_is_better=job.goal.higher_is_better,
        tensors=tuple(outputs[:SHOWN_RANGES]),
        graphs=_graphs(job, result),
        journal=journal_size(job.workspace.history),
    )


def journal_size(history: Path) -> int | None:
    """What tells whether trials were made since: clocks go wrong, a journal only grows."""
    try:
        return history.stat().st_size
    except OSError:
        return None


def write_report(job: Job, result: Result, insight: Insight) -> Report:
    report = make_report(job, result, insight)
    write_text(job.workspace.folder / DATA, as_text(report.to_json()))
    write_text(job.workspace.folder / PAGE, page(report))
    return report


def optional(what: str, work: Callable[[], Value]) -> Value | None:
    """A part that a report can do without: whatever goes wrong there must not cost the result."""
    made = guarded(work)
    if isinstance(made, Exception):
        logger.info("%s are not in the report: %s", what, made)
        return None
    return made


def as_text(value: Any) -> str:
    return json.dumps(finite(value), indent=1) + "\n"


def _environment(job: Job, result: Result) -> dict[str, Any]:
    cpu = this_cpu()
    data = job.calibration
    return {
        "lpot": VERSION,
        **job.backend.versions(),
        "CPU": f"{cpu.name}, {cpu.cores} core(s): {' '.join(cpu.features)}",
        "seed": job.config.tuning.random_seed,
        "strategy": job.config.tuning.strategy.name,
        "approach": job.approach,
        "calibration samples": ", ".join(str(size or "all") for size in job.space.samples),
        "calibration data hash": "none given" if data is None else data.fingerprint(),
        "model hash": job.fingerprint_of_model,
        "configuration hash": job.fingerprint["config"],
        "recipe": result.recipe.digest,
    }


def _contrasts(job: Job, result: Result) -> list[Contrast]:
    """FP32 against the best model on the first calibration batch, where that can be had."""
    inputs = None if job.calibration is None else job.calibration.first.inputs
    quick = job.model.nbytes < HEAVY and not result.interrupted
    if inputs is None or not quick or not isinstance(job.backend, Traced):
        return []
    keys = [info.key for info in job.capability.low()][:LOOKED_AT]
    if not result.recipe.low_ops:
        return []
    job.listener.phase("comparing FP32 and the best op by op")
    found = optional(
        "tensors", lambda: list(look(job.backend, job.model, result.model, keys, inputs))
    )
    job.model.close()
    result.model.close()
    return found or []


def _profile(result: Result) -> Profile:
    """Time by op, where the backend could tell."""
    found = None if result.benchmark is None else result.benchmark.profile
    return found or Profile(())


def _by_key(job: Job, profile: Profile) -> dict[OpKey, ProfileRow]:
    names = {key.name: key for key in job.capability.ops}
    return {names[r.name]: r for r in profile.rows if r.name in names and r.role == "op"}


def _graphs(job: Job, result: Result) -> dict[str, tuple[GraphNode, ...]]:
    """Both graphs, where they are small enough to be looked at."""
    wiring = job.backend.wiring
    if len(job.capability.ops) > SMALL_GRAPH:
        return {}
    drawn = optional("graphs", lambda: (wiring(job.model), wiring(result.model)))
    before, after = drawn or ((), ())
    small = 0 < len(before) <= SMALL_GRAPH and len(after) <= DRAWN_GRAPH
    if not small or not result.recipe.low_ops:
        return {}
    return {"fp32": before, "best": after}


def _yaml(job: Job) -> str:
    raw = json.loads(json.dumps(public(plain(job.config)), default=str))
    stream = io.StringIO()
    YAML().dump(raw, stream)
    return stream.getvalue() if raw else ""


# -- The figures a report rests on, each taken from one place: the measurement at the end.


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
    if result.baseline is None or result.best is None or result.best.score is None:
        return {}
    found = result.interval
    return {
        "drop": words.loss(goal, result.best.score, result.baseline.accuracy),
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
        "date": result.when,
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
