"""`--dry-run`: everything that can be found out before an evaluation is spent."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lpot.core import words
from lpot.core.cpu import probe
from lpot.core.errors import (
    BackendUnavailable,
    ConfigError,
    DataError,
    HistoryError,
    LpotError,
    UnsupportedModel,
    WorkspaceError,
)
from lpot.core.evaluation.evaluate import Evaluator, MetricEvaluator
from lpot.core.files.history import History
from lpot.core.files.workspace import overwrites
from lpot.jobs.benchmark.contestant import peak_memory
from lpot.jobs.tune.evaluation import make_evaluator
from lpot.jobs.tune.plan import Plan, make_plan
from lpot.jobs.tune.request import Request

Condition = Literal["ok", "note", "warn", "fail"]

SHOWN_REASONS = 6
STATISTICS = 1 << 20  # bytes kept of one tensor's values, generously
RANK_OVERHEAD = 0.1  # seconds to build and start one model of the ranking


@dataclass(frozen=True)
class Check:
    """One thing looked at. `name` is empty where it goes on with the one before."""

    name: str
    state: Condition
    text: str


@dataclass(frozen=True)
class Preflight:
    """What was found. `evaluations` counts the most there can be, FP32 included."""

    checks: tuple[Check, ...]
    evaluations: int | None = None
    seconds: float | None = None  # of one evaluation, where something tells

    @property
    def ok(self) -> bool:
        return all(check.state != "fail" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "checks": [dict(vars(check)) for check in self.checks],
            "most_evaluations": self.evaluations,
            "seconds_an_evaluation": self.seconds,
        }


def preflight(request: Request) -> Preflight:
    """Look at model, data, evaluation, ops, disk and memory; nothing is written or evaluated."""
    try:
        plan = make_plan(request)
    except LpotError as error:
        return Preflight((Check(_stage(error), "fail", str(error)),))
    return _Look(plan).around()


def _stage(error: LpotError) -> str:
    stages: Mapping[type[LpotError], str] = {
        ConfigError: "config",
        DataError: "data",
        UnsupportedModel: "model",
        BackendUnavailable: "framework",
    }
    return next((name for kind, name in stages.items() if isinstance(error, kind)), "setup")


class _Look:
    """One look at a plan: each method tells what it found."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.notes = list(plan.remarks)
        self.batch_seconds = 0.0
        self.growth = 0  # bytes the first run took
        self.evaluator: Evaluator | None = None
        self.known: History | None = None

    def around(self) -> Preflight:
        checks = [*self.model(), *self.data(), *self.evaluation(), *self.ops(), *self.places()]
        checks += [*self.memory(), *self.history()]
        evaluations = None
        if self.evaluator is not None and self.plan.space.choices:
            evaluations = 1 + self.plan.most_trials()
        seconds = self.evaluation_seconds()
        checks.append(Check("effort", "ok", self.effort(evaluations, seconds)))
        checks += [Check("", "note", note) for note in self.notes]
        return Preflight(tuple(checks), evaluations, seconds)

    def model(self) -> Iterator[Check]:
        plan = self.plan
        inputs = ", ".join(map(str, plan.source.inputs or ())) or "inputs not known"
        text = f"{plan.backend.name}, {words.size(plan.source.nbytes)}, {inputs}"
        yield Check("model", "ok", f"{text}; {plan.approach}; {plan.goal}")

    def data(self) -> Iterator[Check]:
        calibration = self.plan.calibration
        if calibration is None:
            yield Check("data", "ok", "no calibration data, and none is needed")
            return
        first = calibration.first
        before = peak_memory()
        try:
            self.plan.backend.run(self.plan.source, first.inputs)
            start = time.perf_counter()
            self.plan.backend.run(self.plan.source, first.inputs)
        except DataError as error:
            yield Check("data", "fail", f"the first calibration batch does not fit: {error}")
            return
        self.batch_seconds = time.perf_counter() - start
        self.growth = max(0, peak_memory() - before)
        many = (
            "of unknown length" if calibration.length is None else f"{calibration.length} batches"
        )
        text = f"{many}, {calibration.batch_size} samples a batch; the first one ran"
        yield Check("data", "ok", f"{text} in {words.duration(self.batch_seconds)}")
        if any(map(_is_broken, first.values)):
            yield Check("", "warn", "the first calibration batch holds NaN or Inf")

    def evaluation(self) -> Iterator[Check]:
        try:
            self.evaluator = make_evaluator(self.plan.request, self.plan.source, self.notes.append)
        except LpotError as error:
            yield Check("evaluation", "fail", str(error))
            return
        if self.evaluator is None:
            text = "nothing to evaluate with: one all-INT8 model will be built but not evaluated"
            yield Check("evaluation", "warn", text)
        elif isinstance(self.evaluator, MetricEvaluator):
            batches = length_hint(self.evaluator.loader, 0) or "an unknown number of"
            yield Check("evaluation", "ok", f"{self.evaluator.name} over {batches} batches")
        else:
            name = getattr(self.plan.request.eval_func, "__qualname__", "eval_func")
            yield Check("evaluation", "ok", f"{name}: can be called with one model")

    def ops(self) -> Iterator[Check]:
        ops = self.plan.capability.ops.values()
        low = [info for info in ops if info.can_be_low]
        followers = sum(info.follower for info in low)
        text = f"{len(low)} of {len(ops)} ops can be low precision"
        if followers:
            text += f", {followers} of them only between neighbours that are"
        kept = len(low) - len(self.plan.space.choices)
        if kept:
            text += f"; {kept} stay in FP32 under your rules"
        yield Check("ops", "ok" if self.plan.space.choices else "warn", text)
        reasons = Counter((info.key.kind, info.reason) for info in ops if not info.can_be_low)
        for (kind, reason), count in reasons.most_common(SHOWN_REASONS):
            yield Check("", "note", f"{count} × {kind} stays in FP32: {reason}")
        if len(reasons) > SHOWN_REASONS:
            more = len(reasons) - SHOWN_REASONS
            yield Check("", "note", f"{more} more reasons: `lpot inspect` lists every op")

    def places(self) -> Iterator[Check]:
        needed = 2 * self.plan.source.nbytes + (1 << 20)
        output = self.plan.request.output
        places = {"workspace": self.plan.workspace.folder}
        if output is not None:
            places["output"] = output.parent
        for name, folder in places.items():
            path = output if name == "output" and output is not None else folder
            try:
                if path == output and overwrites(path, self.plan.request.model):
                    raise WorkspaceError(f"{path} is the FP32 model itself: name another file")
                free = room(folder, needed)
            except WorkspaceError as error:
                yield Check(name, "fail", str(error))
                continue
            yield Check(
                name, "ok", f"{path}: {free / 1e9:.3g} GB free, about {needed / 1e6:.3g} MB needed"
            )

    def memory(self) -> Iterator[Check]:
        available = probe().available
        tensors = len(self.plan.space.choices) * (1 + len(self.plan.space.samples))
        needed = 3 * self.plan.source.nbytes + tensors * STATISTICS + 2 * self.growth
        text = f"about {needed / 1e6:.3g} MB more will be needed"
        if not available:
            yield Check("memory", "note", f"{text}; what is available can't be read here")
            return
        fits = needed < available
        told = f"{text}, {available / 1e9:.3g} GB are available"
        yield Check("memory", "ok" if fits else "warn", told)

    def history(self) -> Iterator[Check]:
        path = self.plan.workspace.history
        if not path.exists():
            yield Check("history", "ok", "none yet: a new one will be started")
            return
        try:
            with self.plan.workspace.lock():
                self.known = History.read(path)
        except WorkspaceError as error:
            yield Check("history", "fail", str(error))
            return
        except HistoryError as error:
            yield Check("history", "warn", f"{error}; it will be set aside")
            return
        count = len(self.known.trials)
        text = f"{path} has {count} trial(s): the run goes on from them"
        yield Check("history", "ok", text)

    def evaluation_seconds(self) -> float | None:
        if self.known is not None and self.known.baseline is not None:
            return self.known.baseline.seconds
        if isinstance(self.evaluator, MetricEvaluator) and self.batch_seconds:
            return length_hint(self.evaluator.loader, 0) * self.batch_seconds or None
        return None

    def effort(self, evaluations: int | None, seconds: float | None) -> str:
        prepare = self._preparation()
        text = f"calibration and ranking about {words.duration(max(1.0, prepare))}"
        if evaluations is None:
            return f"{text}; no evaluation"
        text += f"; at most {evaluations} evaluations, FP32 included"
        if seconds is None:
            return f"{text}, each takes as long as your function does"
        return (
            f"{text}, about {words.duration(seconds)} each: "
            f"{words.duration(prepare + evaluations * seconds)} at most"
        )

    def _preparation(self) -> float:
        calibration = self.plan.calibration
        if calibration is None:
            return 0.0
        sizes = self.plan.space.samples
        batches = -(-max(sizes) // calibration.batch_size) or calibration.length or 1
        leaders = len(self.plan.space.choices) - len(self.plan.space.followers)
        return self.batch_seconds * (2 * batches + leaders) + leaders * RANK_OVERHEAD


def room(folder: Path, needed: int) -> int:
    """Free bytes where the folder is or will be; an error when it can't be written or is full."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK):
        kind = "not a folder" if not there.is_dir() else "not writable"
        raise WorkspaceError(f"{folder}: {there} is {kind}: choose another one")
    free = shutil.disk_usage(there).free
    if free < needed:
        raise WorkspaceError(
            f"{folder}: {free >> 20} MiB are free, about {needed >> 20} MiB are needed"
        )
    return free


def _is_broken(value: Any) -> bool:
    array = value if isinstance(value, np.ndarray) else None
    return array is not None and array.dtype.kind == "f" and not np.isfinite(array).all()
