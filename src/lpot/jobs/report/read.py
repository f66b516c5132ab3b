"""A report from whatever a workspace holds: finished, under way, or cut off."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lpot.core import words
from lpot.core.errors import HistoryError
from lpot.core.files.card import read_card, recipe_of
from lpot.core.files.draft import is_alive
from lpot.core.files.history import NAME, History
from lpot.core.files.untrusted import checked, read_json
from lpot.core.files.workspace import written_pid
from lpot.core.goal import Goal
from lpot.core.preference import recorded, recorded_goal
from lpot.core.results.report import (
    FORMAT,
    GraphNode,
    OpRow,
    Report,
    State,
    TimeRow,
    TrialRow,
    finite,
    planned_rows,
    trial_row,
)
from lpot.core.trial import Score, Trial
from lpot.jobs.report.write import DATA, journal_size
from lpot.jobs.storage.workspace import fetched

logger = logging.getLogger(__name__)

ADVICE = "delete it to make the report from the history beside it, or tune again"
NEAR = 5  # workspaces named when the one given has nothing


def read_report(workspace: str | Path) -> Report:
    """The report of a workspace, of a report.json, or of a history alone. Takes no lock."""
    path = fetched(workspace)
    if not path.exists():
        raise HistoryError(f"{path}: no such workspace{_near(path.parent)}")
    if path.is_file():
        return _of_history(path) if path.suffix == ".jsonl" else _of_file(path)
    data, history = path / DATA, path / NAME
    if data.is_file():
        try:
            report = _of_file(data)
        except HistoryError:
            if not history.is_file():
                raise
            logger.warning("%s can't be used: the report is made from %s", data, history)
        else:
            if not _has_more(history, report):
                return report
    if history.is_file():
        return _of_history(history)
    raise HistoryError(
        f"{path}: no report here: a tuning leaves {DATA} and {NAME} in its workspace{_near(path)}"
    )


def stamp(workspace: Path) -> tuple[int, ...]:
    """Changes whenever there is something new to show; costs two looks at the disk."""
    found: list[int] = []
    for name in (NAME, DATA):
        try:
            state = (workspace / name).stat()
        except OSError:
            found += [0, 0]
        else:
            found += [state.st_mtime_ns, state.st_size]
    return (*found, int(_is_alive(workspace)), int(workspace.is_dir()))


def _has_more(history: Path, report: Report) -> bool:
    """Has a run gone on in this workspace since the report was written?"""
    size = journal_size(history)
    if size is None:
        return False
    if report.journal is not None:
        return size != report.journal
    try:  # of an older version
        return len(History.read(history).trials) > len(report.trials)
    except HistoryError:
        return False


def _of_file(path: Path) -> Report:
    raw = _renamed(read_json(path, ADVICE))
    shape = checked(Shape, finite(raw), path, ADVICE)
    try:
        report = Report.from_json({**raw, "result": {**raw["result"], **shape.result.known()}})
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise HistoryError(f"{path}: damaged ({error!r}): {ADVICE}") from error
    if report.format > FORMAT:
        logger.warning("%s was written by a newer lpot: what it adds is not shown", path)
    return report


def _renamed(raw: Any) -> Any:
    """With today's name for what reports before called the harm of an op."""
    ops = raw.get("ops") if isinstance(raw, dict) else None
    if not isinstance(ops, list):
        return raw
    return {
        **raw,
        "ops": [
            {"sensitivity": row.get("harm"), **row} if isinstance(row, dict) else row for row in ops
        ],
    }


def _of_history(path: Path) -> Report:
    history = History.read(path)
    goal = recorded_goal(history.info)
    higher = goal is None or goal.higher_is_better
    best = recorded(history.info, history.baseline).best(history.trials)
    state: State = "running" if _is_alive(path.parent) else "stopped"
    baseline = history.baseline
    scored = [trial for trial in history.trials if trial.score is not None]
    failed = [trial for trial in history.trials if trial.error is not None]
    # A line that is being written looks torn: that is no news while the run goes on.
    notes = [] if state == "running" else list(history.notes)
    saved = best if best is None or state == "running" else _on_disk(path.parent, best, history)
    if best is not None and saved is not best and saved is not None:
        notes.append(
            f"trial {best.number} scored {best.accuracy:.6g}, and the process ended before its "
            f"model was saved: the model here is that of trial {saved.number}; run it again"
        )
        best = saved
    if failed and not scored:
        notes.append(f"all {len(failed)} trial(s) failed, the last with: {failed[-1].error}")
    floats = [] if best is None else [key.name for key in best.recipe.float_ops]
    size = None if best is None or best.score is None else best.score.size
    sizes = None if baseline is None or not (baseline.size and size) else (baseline.size, size)
    result = {
        "met": None if best is None else best.met,
        "goal": "" if goal is None else str(goal),
        "baseline": None if baseline is None else baseline.to_json(),
        "accuracy": None if best is None else best.accuracy,
        "evaluations": len(scored) + (baseline is not None),
        "bytes": None if sizes is None else {"fp32": sizes[0], "best": sizes[1]},
        "best": None if best is None else best.number,
        **_lost(goal, baseline, best),
        "fp32_ops": floats,
        "precisions": {} if best is None else best.recipe.precisions(),
        "notes": notes,
    }
    return Report(
        name=str(history.info.get("name", path.parent.name)),
        framework=str(history.info.get("framework", "")),
        result=result,
        bar=None if goal is None or baseline is None else goal.bar(baseline.accuracy),
        # Read from a file, each looks recalled; in the run that is shown it was made.
        trials=tuple(replace(trial_row(t, higher), recalled=False) for t in history.trials),
        ops=() if best is None else planned_rows(best.recipe),
        environment={f"{key} hash": value for key, value in history.fingerprint.items() if value},
        higher_is_better=higher,
        state=state,
    )


def _on_disk(folder: Path, best: Trial, history: History) -> Trial:
    """The trial whose model lies in the folder; the best one where there is no other."""
    for place in folder.glob("*.card.json"):
        model = place.with_name(place.name.removesuffix(".card.json"))
        card = read_card(model)
        recipe = recipe_of(card, model) if "goal" in card else None
        if recipe is None or recipe.digest == best.recipe.digest:
            continue
        known = [t for t in history.trials if t.recipe.digest == recipe.digest and t.score]
        if known:
            return known[-1]
    return best


def _lost(goal: Goal | None, baseline: Score | None, best: Trial | None) -> dict[str, str]:
    if goal is None or baseline is None or best is None or best.score is None:
        return {}
    lost = words.loss(goal, best.score, baseline.accuracy)
    return {"drop": lost, "allowed": words.allowed(goal)}


def _is_alive(workspace: Path) -> bool:
    """Is the process that tuned here last still there? The lock itself is left alone."""
    number = written_pid(workspace / "lock")
    return number is not None and is_alive(number)


def _near(folder: Path) -> str:
    """Workspaces below, for those who gave the folder around them."""
    if not folder.is_dir():
        return ""
    found = sorted({path.parent for path in folder.glob(f"*/{NAME}")} | _deeper(folder))[:NEAR]
    return f"; there are: {', '.join(map(str, found))}" if found else ""


def _deeper(folder: Path) -> set[Path]:
    return {path.parent for path in folder.glob(f"*/*/{NAME}")}


# -- What report.json must look like before any of it is shown: it may be anybody's file.


LARGEST = 1e30  # figures beyond it can't be drawn


@dataclass(frozen=True)
class ScoreShape:
    accuracy: float
    latency: float | None = None
    size: float | None = None


@dataclass(frozen=True)
class VerdictShape:
    brief: str
    figures: str = ""
    style: str = "fair"


@dataclass(frozen=True)
class MeasuredShape:
    fp32: float
    best: float
    memory: list[int]
    batch: int
    threads: int
    cpu: str
    date: str
    confidence: float | None = None


@dataclass(frozen=True)
class ResultShape:
    met: bool | None = None
    verdict: VerdictShape | None = None
    busy: bool = False
    goal: str = ""
    baseline: ScoreShape | None = None
    accuracy: float | None = None
    speed: float | None = None
    speed_range: tuple[float, float] | None = None
    faster: bool | None = None
    bytes: dict[str, float] | None = None
    evaluations: int = 0
    fp32_ops: list[str] = field(default_factory=list)
    precisions: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    pareto: list[int] = field(default_factory=list)
    stopped: str = ""
    model: str | None = None
    measured: MeasuredShape | None = None
    best: int | None = None
    drop: str = ""
    allowed: str = ""
    drop_range: str | None = None
    path: str | None = None
    usage: str = ""

    def known(self) -> dict[str, Any]:
        """Sizes, of which both are there or none is."""
        sizes = self.bytes or {}
        whole = {"fp32", "best"} <= set(sizes) and sizes["fp32"] > 0
        return {"bytes": sizes if whole else None}


@dataclass(frozen=True)
class TensorShape:
    op: tuple[str, str]
    what: str
    sqnr: float
    largest_error: float
    fp32_range: tuple[float, float]
    low_range: tuple[float, float]
    edges: tuple[float, float]
    fp32_counts: list[int]
    low_counts: list[int]
    shape: list[int]
    worst_samples: list[tuple[int, float]]


@dataclass(frozen=True)
class Shape:
    name: str
    framework: str
    result: ResultShape
    bar: float | None
    trials: list[TrialRow]
    ops: list[OpRow]
    environment: dict[str, Any] = field(default_factory=dict)
    config: str = ""
    profile: str = ""
    times: list[TimeRow] = field(default_factory=list)
    higher_is_better: bool = True
    state: State = "finished"
    tensors: list[TensorShape] = field(default_factory=list)
    graphs: dict[str, list[GraphNode]] = field(default_factory=dict)
    journal: int | None = None
    format: int = 1

    def __post_init__(self) -> None:
        for value in _numbers(self):
            if abs(value) > LARGEST:
                raise ValueError(f"{value:.3g} is not a valid figure")
        if any(n < 0 for t in self.tensors for n in (*t.fp32_counts, *t.low_counts)):
            raise ValueError("a histogram has a negative count")


def _numbers(value: Any) -> list[float]:
    """All numbers inside."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, int | float):
        return [float(min(max(value, -(10**300)), 10**300)) if isinstance(value, int) else value]
    if isinstance(value, Mapping):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, list | tuple):
        return [number for item in value for number in _numbers(item)]
    return [number for item in vars(value).values() for number in _numbers(item)]
