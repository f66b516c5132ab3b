"""Many tunings in one table and on one page, accuracy against speed for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from markupsafe import Markup
from rich.table import Table

from lpot.core import words
from lpot.report.html import document
from lpot.report.markup import element, joined
from lpot.report.svg import runs_plot
from lpot.report.table import listing

COLUMNS = ("model", "goal", "target", "bar", "FP32", "best", "speed", "size", "trials", "time", "")


@dataclass(frozen=True)
class CellRow:
    """One tuning of many; `result` is what its result.json has."""

    model: str
    goal: str
    target: str
    state: str = "waiting"
    error: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def baseline(self) -> float | None:
        found = (self.result.get("baseline") or {}).get("accuracy")
        return None if found is None else float(found)

    @property
    def texts(self) -> tuple[str, ...]:
        """As COLUMNS has them."""
        result = self.result
        if not result:
            return (self.model, self.goal, self.target, self.state, *[""] * 6, self.error)
        met = {True: "met", False: "missed", None: "not evaluated"}[result.get("met")]
        if result.get("proven") is False and result.get("met"):
            met = "met, not proven"
        if result.get("declined"):
            met = f"{met}: FP32, INT8 is slower"
        sizes, speed = result.get("bytes"), result.get("speed")
        how = " of CPU time" if result.get("busy") else ""
        return (
            self.model,
            self.goal,
            self.target,
            met if self.state == "done" else self.state,
            words.accuracy(self.baseline),
            words.accuracy(result.get("accuracy")),
            "–" if speed is None else f"{speed:.2f}×{how}",
            "–" if sizes is None else words.size_change(sizes["fp32"], sizes["best"]),
            str(result.get("trials", "")),
            words.duration(self.seconds),
            self.error,
        )


def matrix_table(rows: Sequence[CellRow]) -> Table:
    return listing(COLUMNS, [row.texts for row in rows])


def matrix_page(rows: Sequence[CellRow]) -> str:
    """One HTML file: a table of all, and a plot for each model that was timed."""
    done = sum(row.state == "done" for row in rows)
    body = [element("h1", f"{done} of {words.some(len(rows), 'tuning')} done"), _table(rows)]
    for model, group in groupby(sorted(rows, key=lambda row: row.model), lambda row: row.model):
        body.append(_plot(model, list(group)))
    return document(f"{len(rows)} tunings", joined(*body))


def _table(rows: Sequence[CellRow]) -> Markup:
    head = element("tr", joined(*(element("th", name) for name in COLUMNS)))
    lines = (element("tr", joined(*(element("td", t) for t in row.texts))) for row in rows)
    return element("table", element("thead", head), element("tbody", joined(*lines)))


def _plot(model: str, rows: Sequence[CellRow]) -> Markup:
    points = [
        (f"{row.goal} {row.target}", row.result["speed"], _kept(row), _style(row))
        for row in rows
        if row.result.get("speed") is not None and row.result.get("accuracy") is not None
        if row.baseline
    ]
    if not points:
        return Markup()
    return joined(element("h2", model), runs_plot(points))


def _kept(row: CellRow) -> float:
    assert row.baseline
    return 100.0 * float(row.result["accuracy"]) / row.baseline


def _style(row: CellRow) -> str:
    return "met" if row.result.get("met") else "missed"
