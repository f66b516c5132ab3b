"""Tensors in FP32 and low precision, as a table for the terminal and as a page of histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from lpot.core import words
from lpot.core.results.tensors import EQUAL, Contrast
from lpot.report.html import document, figure
from lpot.report.markup import render
from lpot.report.table import listing

BARS = "▁▂▃▄▅▆▇█"
MOST = 400  # histograms in a page
HEAD = ("op", "kind", "", "SQNR", "largest error", "FP32", "tuned", "values", "worst samples")


def tensor_table(found: Sequence[Contrast], most: int) -> Table:
    return listing(HEAD, map(_row, found[:most]))


def _row(item: Contrast) -> tuple[str, ...]:
    sqnr = "equal" if item.sqnr >= EQUAL else f"{item.sqnr:.1f} dB"
    worst = ", ".join(f"{number}: {value:.1f} dB" for number, value in item.worst_samples)
    return (
        item.op.name,
        item.op.kind,
        item.what,
        sqnr,
        f"{item.largest_error:.3g}",
        _span(item.fp32_range),
        _span(item.low_range),
        sparkline(item.fp32_counts),
        worst,
    )


def _span(limits: tuple[float, float]) -> str:
    return f"{limits[0]:.3g} to {limits[1]:.3g}"


def sparkline(counts: Sequence[int], width: int = 16) -> str:
    """A histogram in a few characters, with logarithmic heights.

    >>> sparkline([0, 1, 100, 10000], width=4)
    ' ▂▅█'
    """
    step = max(1, -(-len(counts) // width))
    sums = [sum(counts[at : at + step]) for at in range(0, len(counts), step)]
    top = math.log1p(max(sums, default=0)) or 1.0
    last = len(BARS) - 1
    return "".join(" " if not n else BARS[round(math.log1p(n) / top * last)] for n in sums)


def tensor_page(name: str, found: Sequence[Contrast]) -> str:
    """Histograms of every op, the worst first."""
    body = render(
        "page.tensors.html",
        figures=[figure(item) for item in found[:MOST]],
        left=len(found) - MOST,
    )
    return document(f"{words.one_line(name)}: FP32 vs. low precision", body)
