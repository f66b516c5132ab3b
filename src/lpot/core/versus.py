"""Two runs side by side: which figures differ, which is better, which ops became something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lpot.core.report import Report, finite

Better = Literal["first", "second", ""]


@dataclass(frozen=True)
class Figure:
    """One figure of both runs. `better` is empty where they tie, or where more is neither."""

    name: str
    first: float | str | None
    second: float | str | None
    better: Better = ""


@dataclass(frozen=True)
class OpChange:
    """An op that is not the same in both, with its output's SQNR where it is known."""

    name: str
    kind: str
    first: str
    second: str
    first_sqnr: float | None = None
    second_sqnr: float | None = None


@dataclass(frozen=True)
class Versus:
    first: Report
    second: Report
    figures: tuple[Figure, ...]
    ops: tuple[OpChange, ...]
    differing: tuple[tuple[str, str, str], ...]  # of the environment: name, first, second
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        raw: dict[str, Any] = finite(
            {
                "first": f"{self.first.name} ({self.first.framework})",
                "second": f"{self.second.name} ({self.second.framework})",
                "figures": [asdict(item) for item in self.figures],
                "ops": [asdict(item) for item in self.ops],
                "differing": [list(item) for item in self.differing],
                "notes": list(self.notes),
            }
        )
        return raw


def versus(first: Report, second: Report) -> Versus:
    """What is to be known before one of two runs is chosen."""
    differing = tuple(
        (str(key), str(first.environment.get(key, "")), str(second.environment.get(key, "")))
        for key in {**first.environment, **second.environment}
        if first.environment.get(key) != second.environment.get(key)
    )
    return Versus(
        first, second, tuple(_figures(first, second)), _changes(first, second), differing,
        tuple(_notes(first, second)),
    )  # fmt: skip


def _figures(first: Report, second: Report) -> list[Figure]:
    higher = first.higher_is_better
    return [
        Figure("state", first.state, second.state),
        Figure("bar met", _met(first), _met(second), _first_met(first, second)),
        _figure("accuracy", first, second, lambda r: r.result["accuracy"], higher),
        _figure("FP32 accuracy", first, second, lambda r: _baseline(r, "accuracy"), None),
        _figure("bar", first, second, lambda r: r.bar, None),
        _speed(first, second),
        _figure("size, bytes", first, second, lambda r: _size(r, "best"), False),
        _figure("FP32 size, bytes", first, second, lambda r: _size(r, "fp32"), None),
        _figure("evaluations", first, second, lambda r: r.result["evaluations"], False),
        _figure("trials", first, second, lambda r: len(r.trials), None),
        _figure("ops in FP32", first, second, lambda r: len(r.result["fp32_ops"]), None),
        _figure("seconds of trials", first, second, _seconds, None),
    ]


def _figure(
    name: str,
    first: Report,
    second: Report,
    get: Callable[[Report], Any],
    higher_is_better: bool | None,
) -> Figure:
    one, other = get(first), get(second)
    if higher_is_better is None or None in (one, other) or one == other:
        return Figure(name, one, other)
    return Figure(name, one, other, "first" if (one > other) == higher_is_better else "second")


def _speed(first: Report, second: Report) -> Figure:
    """Better only where the intervals of the two measurements do not touch."""
    found = _figure("speed, times FP32", first, second, lambda r: r.result["speed"], True)
    ranges = [report.result["speed_range"] for report in (first, second)]
    if None in ranges or not (ranges[0][0] > ranges[1][1] or ranges[1][0] > ranges[0][1]):
        return Figure(found.name, found.first, found.second)
    return found


def _met(report: Report) -> str:
    words = {True: "yes", False: "no"}
    return words.get(report.result["met"], "unknown")


def _first_met(first: Report, second: Report) -> Better:
    one, other = first.result["met"] is True, second.result["met"] is True
    if one == other:
        return ""
    return "first" if one else "second"


def _baseline(report: Report, key: str) -> float | None:
    return (report.result["baseline"] or {}).get(key)


def _size(report: Report, key: str) -> int | None:
    return (report.result["bytes"] or {}).get(key)


def _seconds(report: Report) -> float:
    return round(sum(row.seconds for row in report.trials), 3)


def _changes(first: Report, second: Report) -> tuple[OpChange, ...]:
    one = {(op.name, op.kind): op for op in first.ops}
    other = {(op.name, op.kind): op for op in second.ops}
    found = []
    for key in {**one, **other}:
        left, right = one.get(key), other.get(key)
        before = "absent" if left is None else _became(left.precision, left.how)
        after = "absent" if right is None else _became(right.precision, right.how)
        if before != after:
            found.append(
                OpChange(
                    *key,
                    before,
                    after,
                    None if left is None else left.sqnr,
                    None if right is None else right.sqnr,
                )
            )
    return tuple(found)


def _became(precision: str, how: str) -> str:
    return f"{precision}, {how}" if how else precision


def _notes(first: Report, second: Report) -> list[str]:
    notes = []
    hashes = [report.environment.get("model hash") for report in (first, second)]
    if None not in hashes and hashes[0] != hashes[1]:
        notes.append("the two runs are of different models: their figures are not comparable")
    cpus = [report.environment.get("CPU") for report in (first, second)]
    if None not in cpus and cpus[0] != cpus[1]:
        notes.append("the two runs were made on different CPUs: their speeds are not comparable")
    if None not in (first.result["speed"], second.result["speed"]):
        notes.append(
            "the two speeds were measured at different times: to choose by speed, measure both "
            "models in turns with `lpot benchmark`"
        )
    if first.higher_is_better != second.higher_is_better:
        notes.append("one metric is better when higher, the other when lower")
    if _baseline(first, "accuracy") != _baseline(second, "accuracy"):
        notes.append("FP32 scored differently: another evaluation, or other data")
    return notes
