"""Two runs side by side, as a page and for the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lpot.core import words
from lpot.core.versus import Figure, OpChange, Versus
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
