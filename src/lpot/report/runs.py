"""Several runs on one page: a table, and all of them on one plot of accuracy against speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType

from lpot.core import words
from lpot.core.results.report import Report
from lpot.report.html import document
from lpot.report.markup import render
from lpot.report.next_step import first_line
from lpot.report.svg import runs_plot
from lpot.report.table import listing

HEAD = ("run", "state", "accuracy", "FP32", "drop", "speed ×", "size", "trials")
Entry = tuple[str, str, Report | str]  # name, address, what is known


def runs_page(title: str, entries: Sequence[Entry], live: bool = False) -> str:
    """The page of a folder; addresses are empty where runs have no page of their own."""
    rows = [{"name": name, "address": address, **_row(found)} for name, address, found in entries]
    points = [(name, *place) for name, _, found in entries if (place := _place(found)) is not None]
    body = render(
        "page.runs.html",
        head=HEAD,
        rows=rows,
        count=words.some(len(rows), "run"),
        plot=runs_plot(points) if points else "",
        left=len(rows) - len(points),
    )
    return document(title, body, live)


def runs_summary(entries: Sequence[Entry]) -> RenderableType:
    """The same for the terminal."""
    rows = []
    for name, _, found in entries:
        row = _row(found)
        rows.append((name, row["state"], *(row["cells"] or ("",) * (len(HEAD) - 2))))
    return listing(HEAD, rows)


def _row(found: Report | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"state": "damaged", "style": "missed", "remark": found, "cells": None}
    result = found.result
    state, style = _state(found)
    sizes = result["bytes"]
    speed = result["speed"]
    cells = (
        words.accuracy(result["accuracy"]),
        words.accuracy((result["baseline"] or {}).get("accuracy")),
        result["drop"] or "–",
        "–" if speed is None else f"{speed:.2f}{' of CPU time' * bool(result['busy'])}",
        words.size_change(sizes["fp32"], sizes["best"]) if sizes else "–",
        str(len(found.trials)),
    )
    return {"state": state, "style": style, "remark": first_line(found)[0], "cells": cells}


def _state(report: Report) -> tuple[str, str]:
    if report.state != "finished":
        return report.state, "open"
    if report.result["met"] is None:
        return "not evaluated", "open"
    return ("bar met", "met") if report.result["met"] else ("bar missed", "missed")


def _place(found: Report | str) -> tuple[float, float, str] | None:
    """(speed, accuracy kept in per cent, style) of a run that has both."""
    if isinstance(found, str):
        return None
    before = (found.result["baseline"] or {}).get("accuracy")
    after, speed = found.result["accuracy"], found.result["speed"]
    if not before or after is None or speed is None:
        return None
    kept = after / before if found.higher_is_better else 2 - after / before
    return speed, 100 * kept, "met" if found.result["met"] else "missed"
