"""Two runs side by side, as a page and for the terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.text import Text

from lpot.core import words
from lpot.core.results.report import Report, finite
from lpot.report.html import document
from lpot.report.markup import render
from lpot.report.table import listing
from lpot.report.trials import search

SHOWN_OPS = 2000  # in the page; --json has all of them


def versus_page(found: Versus, names: tuple[str, str]) -> str:
    """One page for both. `names` are what the user calls them."""
    first, second = map(words.one_line, names)
    body = render(
        "page.versus.html",
        notes=found.notes,
        first=first,
        second=second,
        figures=[_row(figure) for figure in found.figures],
        searches=(search(found.first), search(found.second)),
        ops=[_op(op) for op in found.ops[:SHOWN_OPS]],
        left=len(found.ops) - SHOWN_OPS,
        differing=found.differing,
    )
    return document(f"{first} vs. {second}", body)


def _row(figure: Figure) -> tuple[str, list[tuple[str, str]]]:
    cells = []
    for value, side in ((figure.first, "first"), (figure.second, "second")):
        style = "" if not figure.better else "better" if figure.better == side else "worse"
        cells.append((_figure(figure.name, value), style))
    return figure.name.removesuffix(", bytes"), cells


def _figure(name: str, value: float | str | None) -> str:
    """In the unit that people read."""
    if isinstance(value, str) or value is None:
        return shown(value)
    if name.endswith("bytes"):
        return words.size(value)
    if name.startswith("speed"):
        return f"{value:.2f}"
    return words.duration(value) if name.startswith("seconds") else shown(value)


def _op(op: OpChange) -> dict[str, Any]:
    return {
        "name": words.one_line(op.name),
        "kind": words.one_line(op.kind),
        "first": op.first,
        "second": op.second,
        "decibels": [_decibels(op.first_sqnr), _decibels(op.second_sqnr)],
    }


def _decibels(value: float | None) -> tuple[str, str | None]:
    return ("", None) if value is None else (f"{value:.1f}", f"{value:.4g}")


def shown(value: float | str | None) -> str:
    """
    >>> shown(0.98765432), shown(120000), shown(None)
    ('0.987654', '120 000', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    return f"{value:.6g}" if isinstance(value, float) else value


def versus_summary(found: Versus, names: tuple[str, str], most: int) -> RenderableType:
    """For the terminal; `most` is how many ops are listed."""
    mark = {"first": "←", "second": "→", "": ""}
    figures = listing(
        ("", *names, "better"),
        [
            (f.name, _figure(f.name, f.first), _figure(f.name, f.second), mark[f.better])
            for f in found.figures
        ],
    )
    parts: list[RenderableType] = [Text(f"note: {note}", "yellow") for note in found.notes]
    parts.append(figures)
    if found.ops:
        count = words.some(len(found.ops), "op")
        parts.append(Text(f"\n{count} {'is' if len(found.ops) == 1 else 'are'} different:"))
        parts.append(
            listing(
                ("op", "kind", *names),
                [(op.name, op.kind, op.first, op.second) for op in found.ops[:most]],
            )
        )
        if len(found.ops) > most:
            parts.append(Text(f"and {len(found.ops) - most} more", "dim"))
    return Group(*parts)


# -- Two runs side by side: which figures differ, which is better, which ops became something else.


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
        _figure_of("accuracy", first, second, lambda r: r.result["accuracy"], higher),
        _figure_of("FP32 accuracy", first, second, lambda r: _baseline(r, "accuracy"), None),
        _figure_of("bar", first, second, lambda r: r.bar, None),
        _speed(first, second),
        _figure_of("size, bytes", first, second, lambda r: _size(r, "best"), False),
        _figure_of("FP32 size, bytes", first, second, lambda r: _size(r, "fp32"), None),
        _figure_of("evaluations", first, second, lambda r: r.result["evaluations"], False),
        _figure_of("trials", first, second, lambda r: len(r.trials), None),
        _figure_of("ops in FP32", first, second, lambda r: len(r.result["fp32_ops"]), None),
        _figure_of("seconds of trials", first, second, _seconds, None),
    ]


def _figure_of(
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
    found = _figure_of("speed, times FP32", first, second, lambda r: r.result["speed"], True)
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
