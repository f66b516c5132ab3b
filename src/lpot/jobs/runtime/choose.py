"""`runtime: auto`: the default recipe in each runtime that is installed, timed in turns.

No evaluation is spent: which runtime is the fastest depends on the net and the CPU, and hardly on
which few ops the search will keep in floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lpot.backends import get_runtime, installed_runtimes
from lpot.core import words
from lpot.core.cpu import probe
from lpot.core.errors import LpotError
from lpot.core.files.journal import key_of
from lpot.core.files.timetable import keep, recall
from lpot.core.results.benchmark import BenchmarkResult, Measured, Settings
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant
from lpot.jobs.benchmark.entry import saved
from lpot.jobs.benchmark.runtimes import title
from lpot.jobs.runtime.bridge import AUTO, NATIVE, OWN, folder_of, framework_of, in_runtime
from lpot.jobs.runtime.starts import ALIKE, candidates_of
from lpot.jobs.settings import change_config
from lpot.jobs.tune.plan import make_plan
from lpot.jobs.tune.request import Request

SETTINGS = Settings(seconds=0.6)
MOST = 1000  # batches of a loader that can be read once
SAMPLES = 16  # that ranges are taken from, for timing alone


@dataclass(frozen=True, eq=False)
class Candidate:
    """A runtime, the request that would be tuned for it, and what of it is timed."""

    runtime: str
    request: Request
    entered: tuple[Contestant, ...]
    feed: Any  # a batch by place: runtimes call inputs by other names; None: made up


def fastest(request: Request) -> Request:
    """The request for the fastest runtime; one that was asked for stays."""
    if request.config.model.runtime != AUTO:
        return in_runtime(request)
    if isinstance(request.calib, Iterator):  # it is read more than once now
        request = replace(request, calib=list(islice(request.calib, MOST)))
    place = folder_of(request, framework_of(request)) / f"runtime-{_question(request)}.json"
    known = recall(place, dict)
    if known is not None and known.get("runtime") in (NATIVE, *installed_runtimes()):
        return in_runtime(_for(_remarking(request, known["told"]), str(known["runtime"])))
    with TemporaryDirectory(prefix="lpot-runtimes-") as folder:
        found = list(_candidates(request, Path(folder)))
        chosen, told = _raced(request, found)
    keep(place, {"runtime": chosen.runtime, "told": told}, "the runtime chosen is")
    return _remarking(chosen.request, told)


def _question(request: Request) -> str:
    """What the choice holds for: this model, configuration and data, CPU and versions."""
    plan = make_plan(_for(request, OWN.get(framework_of(request), NATIVE)))
    versions = {name: str(get_runtime(name).versions()) for name in installed_runtimes()}
    return key_of({**plan.facts, "cpu": probe().name, **versions})


def _remarking(request: Request, told: Any) -> Request:
    return replace(request, remarks=(*request.remarks, str(told)))


def _raced(request: Request, found: list[Candidate]) -> tuple[Candidate, str]:
    if len(found) == 1:
        others = "no other runtime is installed, or can run this model"
        return found[0], f"runtime: {title(found[0].runtime)} ({others})"
    request.listener.phase("timing the default recipe in each runtime")
    entered = [one for candidate in found for one in candidate.entered]
    feed = found[-1].feed  # of the last, whose inputs are those of the file
    feeds = None if feed is None else [feed]
    measured = benchmark(entered, feeds=feeds, settings=SETTINGS)
    rows = {row.label: row for row in measured.models if row.timing is not None}
    best: dict[str, Measured] = {}
    for candidate in found:
        own = [rows[one.label] for one in candidate.entered if one.label in rows]
        if own:
            best[candidate.runtime] = min(own, key=_seconds)
    chosen = found[0]
    for candidate in found[1:]:
        if candidate.runtime in best and _is_faster(best, candidate.runtime, chosen.runtime):
            chosen = candidate
    return chosen, f"runtime: {title(chosen.runtime)}; {_table(measured, rows)}"


def _is_faster(best: Mapping[str, Measured], one: str, other: str) -> bool:
    """By more than anybody notices: near ties stay with what comes first, the framework's own."""
    return other not in best or ALIKE * _seconds(best[one]) < _seconds(best[other])


def _seconds(row: Measured) -> float:
    """The shortest median of a round: what others do to a machine only ever adds."""
    assert row.timing is not None
    return min(row.timing.round_medians)


def _table(measured: BenchmarkResult, rows: Mapping[str, Measured]) -> str:
    told = [
        f"{label} {words.duration(_seconds(row))}"
        for label, row in sorted(rows.items(), key=lambda item: _seconds(item[1]))
    ]
    failed = [f"{row.label} failed ({row.error})" for row in measured.models if row.error]
    return "a batch takes " + ", ".join(told + failed)


def _candidates(request: Request, folder: Path) -> Iterator[Candidate]:
    """The framework's own runtime first."""
    framework = framework_of(request)
    own = OWN.get(framework, NATIVE)
    exported: Request | None = None
    for name in (own, *(name for name in installed_runtimes() if name != own)):
        try:
            if name == own:
                asked = _for(request, own)
            elif exported is None:
                asked = exported = in_runtime(_for(request, name))
            else:  # written as ONNX already
                backend = get_runtime(name)
                assert exported.backend is not None
                backend.present = exported.backend.present
                asked = replace(_for(exported, name), backend=backend)
            yield _entered(asked, name, folder / name)
        except LpotError as error:
            if name == own:
                raise
            request.listener.phase(f"{title(name)} is left out: {error}")


def _for(request: Request, runtime: str) -> Request:
    return replace(request, config=change_config(request.config, {"model.runtime": runtime}))


def _entered(request: Request, runtime: str, folder: Path) -> Candidate:
    """FP32 and the default recipe, with each precision of floats that the runtime has."""
    plan = make_plan(request)
    folder.mkdir()
    made = [replace(saved(plan.source, folder / "fp32"), label=f"FP32 in {title(runtime)}")]
    recipe = plan.space.default()
    observed = None
    if plan.calibration is not None:
        batches = plan.calibration.batches((SAMPLES,))
        observed = plan.backend.observe(plan.source, batches, (0,))[0]
    for number, tried in enumerate(candidates_of(plan.backend.floats, recipe)):
        model = plan.backend.build(plan.source, tried, observed)
        place = folder / str(number)
        kind = "INT8" if tried.low_ops else ""
        label = " with ".join(filter(None, (kind, tried.repairs.floats))) or "FP32"
        made.append(replace(saved(model, place), label=f"{label} in {title(runtime)}"))
        model.close()
    plan.source.close()
    inputs = None if plan.calibration is None else plan.calibration.first.inputs
    feed = tuple(inputs.values()) if isinstance(inputs, Mapping) else inputs
    return Candidate(runtime, request, tuple(made), feed)
