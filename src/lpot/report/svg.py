"""Small plots as inline SVG: no library, no script, readable on paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 620
LEFT, RIGHT, TOP, BOTTOM = 64, 18, 16, 40
TICKS = 5
STEEP = 100  # longest over shortest bar, from which on lengths are logarithmic
MOST_LABELS = 24  # trial numbers written below the axis


@dataclass(frozen=True)
class Point:
    """One trial in a plot; `value` None marks one that failed."""

    number: int
    value: float | None
    style: str  # met, missed, failed
    remark: str = ""


@dataclass(frozen=True)
class Scale:
    """From values to places along one axis."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> Scale:
        low, high = min(values), max(values)
        room = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
        return cls(low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """A few round numbers.

        >>> Scale(0.0, 1.0, 0, 100).ticks
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        """
        span = self.high - self.low
        rough = 10 ** math.floor(math.log10(span / TICKS))
        steps = [rough * factor for factor in (1, 2, 5, 10)]
        step = next((s for s in steps if span / s <= TICKS + 1), steps[-1])
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [float(f"{index * step:.10g}") for index in range(first, last + 1)]


def search_plot(
    points: Sequence[Point], levels: Sequence[tuple[str, float, str]], title: str, unit: str = ""
) -> str:
    """Values by trial in their order; `levels` are (label, value, class) lines across."""
    height = 240
    floor = height - BOTTOM
    known = [point.value for point in points if point.value is not None]
    known += [value for _, value, _ in levels]
    if not known:
        return ""
    up = Scale.around(known, floor - 6, TOP)
    step = (WIDTH - LEFT - RIGHT) / max(len(points), 1)
    places = [LEFT + (index + 0.5) * step for index in range(len(points))]
    body = _grid(up, title, unit, floor)
    body += _levels(up, levels)
    line = " ".join(
        f"{x:.1f},{up(point.value):.1f}"
        for x, point in zip(places, points, strict=True)
        if point.value is not None
    )
    body.append(f'<polyline class="line" points="{line}"/>')
    every = -(-len(points) // MOST_LABELS) or 1
    for index, (x, point) in enumerate(zip(places, points, strict=True)):
        y = floor if point.value is None else up(point.value)
        body.append(_mark(x, y, point))
        if index % every == 0:
            body.append(f'<text class="tick" x="{x:.1f}" y="{floor + 17}">{point.number}</text>')
    body.append(f'<text class="tick" x="{WIDTH / 2}" y="{height - 6}">trial</text>')
    return svg(body, height, f"{title} by trial")


def pareto_plot(
    points: Sequence[tuple[float, Point]],
    front: Sequence[int],
    levels: Sequence[tuple[str, float, str]],
    start: tuple[float, float] | None,
) -> str:
    """Accuracy over latency in milliseconds; `start` is FP32, `front` the trials nobody beats."""
    height = 300
    floor = height - BOTTOM
    across_values = [x for x, _ in points] + ([] if start is None else [start[0]])
    values = [point.value for _, point in points if point.value is not None]
    values += [value for _, value, _ in levels] + ([] if start is None else [start[1]])
    if not across_values or not values:
        return ""
    up = Scale.around(values, floor - 6, TOP)
    across = Scale.around(across_values, LEFT, WIDTH - RIGHT)
    body = _grid(up, "accuracy", "", floor)
    for tick in across.ticks:
        body.append(f'<text class="tick" x="{across(tick):.1f}" y="{floor + 17}">{tick:g}</text>')
    body.append(
        f'<text class="tick" x="{WIDTH / 2}" y="{height - 6}">latency of a batch, ms</text>'
    )
    # FP32 has a name of its own: the bar's stays on the other side of the line.
    body += _levels(up, levels, above=_is_below(start, levels))
    best = sorted((x, p.value) for x, p in points if p.number in front and p.value is not None)
    line = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in best)
    body.append(f'<polyline class="front" points="{line}"/>')
    body += [_mark(across(x), up(p.value), p) for x, p in points if p.value is not None]
    if start is not None:
        x, y = across(start[0]), up(start[1])
        body.append(
            f'<rect class="fp32" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10">'
            f"<title>FP32: {start[1]:.6g}, {start[0]:.4g} ms</title></rect>"
            f'<text class="level" x="{x - 9:.1f}" y="{y + 4:.1f}">FP32</text>'
        )
    return svg(body, height, "accuracy over latency")


def _is_below(start: tuple[float, float] | None, levels: Sequence[tuple[str, float, str]]) -> bool:
    return start is not None and any(start[1] < value for _, value, _ in levels)


def bars_plot(rows: Sequence[tuple[str, float, str]], title: str) -> str:
    """Horizontal bars: (name, value, class), the longest first; each with its value."""
    length_of = _lengths([value for _, value, _ in rows])
    step, room = 22, WIDTH - 350
    body = []
    for index, (name, value, style) in enumerate(rows):
        y = 8 + index * step
        length = max(2.0, length_of(value) * room)
        shown = name if len(name) <= 36 else f"…{name[-35:]}"
        body.append(
            f'<text class="label" x="262" y="{y + 13}">{escape(shown)}</text>'
            f'<rect class="{style}" x="270" y="{y}" width="{length:.1f}" height="16" rx="2">'
            f"<title>{escape(name)}: {value:.3g}</title></rect>"
            f'<text class="value" x="{276 + length:.1f}" y="{y + 13}">{value:.2g}</text>'
        )
    return svg(body, 16 + step * len(rows), title)


def _lengths(values: Sequence[float]) -> Callable[[float], float]:
    """Shares of the full length; logarithmic where the shortest bars would not be seen."""
    known = [value for value in values if value > 0]
    top = max(known, default=1.0)
    low = min(known, default=1.0)
    if top <= STEEP * low:
        return lambda value: value / top
    floor, span = math.log(low / 3), math.log(top) - math.log(low / 3)
    return lambda value: (math.log(value) - floor) / span if value > 0 else 0.0


def histogram_plot(
    edges: tuple[float, float], exact: Sequence[int], low: Sequence[int], title: str
) -> str:
    """Two histograms over one axis, with a logarithmic height: tails are what matters here."""
    width, height = 340, 130
    floor, left = height - 22, 8
    top = math.log1p(max((*exact, *low, 1)))
    step = (width - 2 * left) / max(len(exact), 1)

    def rise(count: int) -> float:
        return math.log1p(count) / top * (floor - 8)

    # One path for each, not a rectangle for each bin: pages stay small.
    bars = "".join(
        f"M{left + i * step:.1f} {floor}v{-rise(c):.1f}h{max(0.5, step - 0.6):.1f}v{rise(c):.1f}z"
        for i, c in enumerate(exact)
        if c
    )
    steps = "".join(f"V{floor - rise(c):.1f}h{step:.2f}" for c in low)
    body = [
        f'<path class="exact" d="{bars}"/>',
        f'<path class="rounded" d="M{left} {floor}{steps}V{floor}"/>',
        f'<text class="value" x="{left}" y="{height - 6}">{edges[0]:.3g}</text>',
        f'<text class="level" x="{width - left}" y="{height - 6}">{edges[1]:.3g}</text>',
    ]
    return svg(body, height, title, width)


def _grid(up: Scale, title: str, unit: str, floor: float) -> list[str]:
    body = []
    for tick in up.ticks:
        y = up(tick)
        body.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="label" x="{LEFT - 6}" y="{y + 4:.1f}">{tick:.6g}</text>'
        )
    label = escape(f"{title}, {unit}" if unit else title)
    middle = (TOP + floor) / 2
    body.append(
        f'<text class="tick" transform="rotate(-90 12 {middle})" x="12" y="{middle}">{label}</text>'
    )
    return body


def _levels(up: Scale, levels: Sequence[tuple[str, float, str]], above: bool = True) -> list[str]:
    """Lines across with their names, which keep clear of each other."""
    ordered = sorted(levels, key=lambda level: -level[1])
    body = []
    for index, (label, value, style) in enumerate(ordered):
        y = up(value)
        text = y - 5 if index == 0 and above else y + 14
        body.append(
            f'<line class="{style}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="level" x="{WIDTH - RIGHT - 2}" y="{text:.1f}">{escape(label)}</text>'
        )
    return body


def _mark(x: float, y: float, point: Point) -> str:
    """Shapes differ as well as colours: filled, hollow, crossed."""
    if point.style == "none":
        return ""
    told = "failed" if point.value is None else f"{point.value:.6g}"
    title = f"<title>{escape(f'trial {point.number}: {told} {point.remark}'.strip())}</title>"
    if point.style == "failed":
        d = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
        return f'<path class="failed" d="{d}">{title}</path>'
    return f'<circle class="{point.style}" cx="{x:.1f}" cy="{y:.1f}" r="5">{title}</circle>'


def svg(body: Sequence[str], height: float, title: str, width: float = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg>"
    )
