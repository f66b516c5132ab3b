"""Two runs side by side, as a page and for the terminal."""

from __future__ import annotations

from html import escape

from rich.console import Group, RenderableType
from rich.text import Text

from lpot.core.report import Report
from lpot.core.versus import Figure, Versus
from lpot.report import words
from lpot.report.html import document, search
from lpot.report.table import listing

SHOWN_OPS = 2000  # in the page; --json has all of them


def versus_page(found: Versus, names: tuple[str, str]) -> str:
    """One page for both. `names` are what the user calls them."""
    first, second = map(words.one_line, names)
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ("", first, second))
    rows = "".join(map(_row, found.figures))
    parts = [
        _notes(found.notes),
        f'<div class="wide"><table class="facts both"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
        "<section><h2>The searches</h2>",
        f'<div class="sides">{_side(first, found.first)}{_side(second, found.second)}</div>'
        "</section>",
        f"<section><h2>Ops that differ</h2>{_ops(found, first, second)}</section>",
        f"<section><h2>What else differs</h2>{_environment(found, first, second)}</section>",
    ]
    return document(f"{first} vs. {second}", "".join(parts))


def _notes(notes: tuple[str, ...]) -> str:
    if not notes:
        return ""
    items = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f'<div class="verdict missed">{items}</div>'


def _row(figure: Figure) -> str:
    cells = []
    for value, side in ((figure.first, "first"), (figure.second, "second")):
        style = "" if not figure.better else "better" if figure.better == side else "worse"
        cells.append(f'<td class="{style}">{escape(shown(value))}</td>')
    return f'<tr><th scope="row">{escape(figure.name)}</th>{"".join(cells)}</tr>'


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


def _side(name: str, report: Report) -> str:
    return f"<div><h3>{escape(name)}</h3>{search(report)}</div>"


def _ops(found: Versus, first: str, second: str) -> str:
    if not found.ops:
        return "<p>None: all ops are the same.</p>"
    head = ("op", "kind", first, second, "SQNR dB", "SQNR dB")
    cells = "".join(
        f'<th scope="col"><button type="button">{escape(text)}</button></th>' for text in head
    )
    rows = "".join(
        f"<tr><td>{escape(words.one_line(op.name))}</td><td>{escape(words.one_line(op.kind))}</td>"
        f"<td>{escape(op.first)}</td><td>{escape(op.second)}</td>"
        f"{_decibels(op.first_sqnr)}{_decibels(op.second_sqnr)}</tr>"
        for op in found.ops[:SHOWN_OPS]
    )
    left = len(found.ops) - SHOWN_OPS
    more = f'<p class="hint">and {left} more</p>' if left > 0 else ""
    table = f"<thead><tr>{cells}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="wide"><table class="sortable plain">{table}</table></div>{more}'


def _decibels(value: float | None) -> str:
    if value is None:
        return '<td class="n"></td>'
    return f'<td class="n" data-v="{value:.4g}">{value:.1f}</td>'


def _environment(found: Versus, first: str, second: str) -> str:
    if not found.differing:
        return "<p>Nothing.</p>"
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ("", first, second))
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(one)}</td><td>{escape(other)}</td>'
        "</tr>"
        for name, one, other in found.differing
    )
    return f'<table class="facts both"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def versus_summary(found: Versus, names: tuple[str, str], most: int) -> RenderableType:
    """For the terminal; `most` is how many ops are listed."""
    mark = {"first": "←", "second": "→", "": ""}
    figures = listing(
        ("", *names, "better"),
        [(f.name, shown(f.first), shown(f.second), mark[f.better]) for f in found.figures],
    )
    parts: list[RenderableType] = [Text(f"note: {note}", "yellow") for note in found.notes]
    parts.append(figures)
    if found.ops:
        count = words.some(len(found.ops), "op")
        parts.append(Text(f"\n{count} {'is' if len(found.ops) == 1 else 'are'} not the same:"))
        parts.append(
            listing(
                ("op", "kind", *names),
                [(op.name, op.kind, op.first, op.second) for op in found.ops[:most]],
            )
        )
        if len(found.ops) > most:
            parts.append(Text(f"and {len(found.ops) - most} more", "dim"))
    return Group(*parts)
