"""Small plots as inline SVG: no library, no script, readable on paper."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT, EDGE = 640, 260, 46


def search_plot(points: Sequence[tuple[int, float, bool]], baseline: float, bar: float) -> str:
    """Accuracy by trial, with the baseline and the bar drawn."""
    values = [value for _, value, _ in points] + [baseline, bar]
    low, high = min(values), max(values)
    room = (high - low) * 0.1 or abs(high) * 0.01 or 1.0
    low, high = low - room, high + room

    def place(index: int, value: float) -> tuple[float, float]:
        across = EDGE + (index + 0.5) * (WIDTH - 2 * EDGE) / max(len(points), 1)
        return across, HEIGHT - EDGE - (value - low) / (high - low) * (HEIGHT - 2 * EDGE)

    above = bar <= baseline  # the two labels keep clear of each other
    body = [_level(place(0, baseline)[1], f"FP32 {baseline:.6g}", "base", above)]
    body.append(_level(place(0, bar)[1], f"bar {bar:.6g}", "bar", not above))
    line = " ".join(
        f"{x:.1f},{y:.1f}" for x, y in (place(i, v) for i, (_, v, _) in enumerate(points))
    )
    body.append(f'<polyline class="line" points="{line}"/>')
    for index, (number, value, met) in enumerate(points):
        x, y = place(index, value)
        body.append(
            f'<circle class="{"met" if met else "missed"}" cx="{x:.1f}" cy="{y:.1f}" r="5">'
            f"<title>trial {number}: {value:.6g}</title></circle>"
            f'<text class="tick" x="{x:.1f}" y="{HEIGHT - EDGE + 18}">{number}</text>'
        )
    body.append(f'<text class="axis" x="{WIDTH / 2}" y="{HEIGHT - 8}">trial</text>')
    return _svg(body, HEIGHT, "accuracy by trial")


def bars_plot(rows: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars: (name, value, class), the longest first."""
    top = max((value for _, value, _ in rows), default=0.0) or 1.0
    step = 22
    body = []
    for index, (name, value, style) in enumerate(rows):
        y = 8 + index * step
        length = max(1.0, value / top * (WIDTH - 330))
        shown = name if len(name) <= 38 else f"…{name[-37:]}"
        body.append(
            f'<text class="label" x="250" y="{y + 13}">{escape(shown)}</text>'
            f'<rect class="{style}" x="258" y="{y}" width="{length:.1f}" height="16" rx="2">'
            f"<title>{escape(name)}: {value:.3g}</title></rect>"
            f'<text class="value" x="{264 + length:.1f}" y="{y + 13}">{value:.2g}</text>'
        )
    return _svg(body, 16 + step * len(rows), "harm by op")


def _level(y: float, label: str, style: str, above: bool) -> str:
    return (
        f'<line class="{style}" x1="{EDGE}" x2="{WIDTH - EDGE}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="level" x="{WIDTH - EDGE}" y="{y + (-5 if above else 14):.1f}">'
        f"{escape(label)}</text>"
    )


def _svg(body: Sequence[str], height: float, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg>"
    )
