"""The verdict on a tuning, for the terminal."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lpot.core.results.result import Result
from lpot.core.results.verdict import rows

STYLES = {"good": "bold green", "fair": "bold yellow"}


def verdict(result: Result) -> RenderableType:
    """A Result for the terminal. `console.print(verdict(result))`."""
    return Group(headline(result), facts(result))


def facts(result: Result, leave_out: Collection[str] = ()) -> Table:
    """The figures and places, one a line, but for those left out by name."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows(result):
        if name not in leave_out:
            table.add_row(name, Text(text))
    return table


def headline(result: Result) -> Text:
    return Text(result.verdict.text, STYLES[result.verdict.style])
