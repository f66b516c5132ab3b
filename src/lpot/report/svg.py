"""Small plots as inline SVG: no library, no script, readable on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lpot.report.markup import element, joined

WIDTH = 620
LEFT, RIGHT, TOP, BOTTOM = 72, 18, 34, 44
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
    sign: str = ""  # of a bound: the score itself lies further down (≤), or up (≥)


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
        if not 0 < span < math.inf:
            return []
        rough = 10 ** math.floor(math.log10(span / TICKS))
        steps = [rough * factor for factor in (1, 2, 5, 10)]
        step = next((s for s in steps if span / s <= TICKS + 1), steps[-1])
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [float(f"{index * step:.10g}") for index in range(first, last + 1)]


def search_plot(
    points: Sequence[Point], levels: Sequence[tuple[str, float, str]], title: str, unit: str = ""
) -> Markup:
    """Values by trial in their order; `levels` are (label, value, class) lines across."""
    height = 240
    floor = height - BOTTOM
    known = [point.value for point in points if point.value is not None]
    known += [value for _, value, _ in levels]
    if not known:
        return Markup()
    up = Scale.around(known, floor - 6, TOP)
    step = (WIDTH - LEFT - RIGHT) / max(len(points), 1)
    places = [LEFT + (index + 0.5) * step for index in range(len(points))]
    body = _grid(up, title, unit)
    body += _levels(up, levels)
    line = " ".join(
        f"{x:.1f},{up(point.value):.1f}"
        for x, point in zip(places, points, strict=True)
        if point.value is not None
    )
    body.append(element("polyline", class_="line", points=line))
    every = -(-len(points) // MOST_LABELS) or 1
    for index, (x, point) in enumerate(zip(places, points, strict=True)):
        y = floor if point.value is None else up(point.value)
        body.append(_mark(x, y, point))
        if index % every == 0:
            body.append(_text("tick", x, floor + 17, point.number))
    body.append(_text("tick", WIDTH / 2, height - 6, "trial"))
    return svg(body, height, f"{title} by trial")


def pareto_plot(
    points: Sequence[tuple[float, Point]],
    front: Sequence[int],
    levels: Sequence[tuple[str, float, str]],
    start: tuple[float, float] | None,
) -> Markup:
    """Accuracy against speed; `start` is FP32, `front` the trials nobody beats."""
    height = 300
    floor = height - BOTTOM
    across_values = [x for x, _ in points] + ([] if start is None else [start[0]])
    values = [point.value for _, point in points if point.value is not None]
    values += [value for _, value, _ in levels] + ([] if start is None else [start[1]])
    if not across_values or not values:
        return Markup()
    up = Scale.around(values, floor - 6, TOP)
    across = Scale.around(across_values, LEFT, WIDTH - RIGHT)
    body = _grid(up, "accuracy", "")
    body += [_text("tick", across(tick), floor + 17, f"{tick:g}") for tick in across.ticks]
    body.append(_text("tick", WIDTH / 2, height - 6, "speed (× FP32)"))
    # FP32 has a name of its own: the bar's stays on the other side of the line.
    body += _levels(up, levels, above=_is_below(start, levels))
    best = sorted((x, p.value) for x, p in points if p.number in front and p.value is not None)
    line = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in best)
    body.append(element("polyline", class_="front", points=line))
    body += [_mark(across(x), up(p.value), p) for x, p in points if p.value is not None]
    if start is not None:
        x, y = across(start[0]), up(start[1])
        told = element("title", f"FP32: {start[1]:.6g}")
        body.append(_box(told, "fp32", (x - 5, y - 5), (10, 10)))
        body.append(_text("value", x + 9, y + 4, "FP32"))
    return svg(body, height, "accuracy against speed")


def runs_plot(runs: Sequence[tuple[str, float, float, str]]) -> Markup:
    """Several runs: (name, speed, accuracy kept in per cent, style); FP32 is the cross-hairs."""
    height = 320
    floor = height - BOTTOM
    up = Scale.around([*(kept for _, _, kept, _ in runs), 100.0], floor - 6, TOP)
    across = Scale.around([*(speed for _, speed, _, _ in runs), 1.0], LEFT, WIDTH - RIGHT)
    body = _grid(up, "accuracy kept", "%")
    body += [_text("tick", across(tick), floor + 17, f"{tick:g}") for tick in across.ticks]
    body.append(_text("tick", WIDTH / 2, height - 6, "speed (× FP32)"))
    body += _levels(up, [("FP32", 100.0, "base")])
    for number, (name, speed, kept, style) in enumerate(runs, start=1):
        x, y = across(speed), up(kept)
        body.append(_mark(x, y, Point(number, kept, style, name)))
        end = x > WIDTH * 0.7
        short = name if len(name) <= 24 else f"…{name[-23:]}"
        body.append(_text("level" if end else "value", x - 7 if end else x + 7, y - 9, short))
    return svg(body, height, "accuracy against speed of all runs")


def _is_below(start: tuple[float, float] | None, levels: Sequence[tuple[str, float, str]]) -> bool:
    return start is not None and any(start[1] < value for _, value, _ in levels)


def bar_lengths(values: Sequence[float]) -> tuple[list[float], bool]:
    """Shares of the full length, and whether they are logarithmic: where the shortest bars would
    not be seen.

    >>> bar_lengths([4.0, 1.0])
    ([1.0, 0.25], False)
    """
    known = [value for value in values if value > 0]
    top = max(known, default=1.0)
    low = min(known, default=1.0)
    if top <= STEEP * low:
        return [value / top for value in values], False
    floor, span = math.log(low / 3), math.log(top) - math.log(low / 3)
    return [(math.log(v) - floor) / span if v > 0 else 0.0 for v in values], True


def histogram_plot(
    edges: tuple[float, float], exact: Sequence[int], low: Sequence[int], title: str
) -> Markup:
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
        element("path", class_="exact", d=bars),
        element("path", class_="rounded", d=f"M{left} {floor}{steps}V{floor}"),
        _text("value", left, height - 6, f"{edges[0]:.3g}"),
        _text("level", width - left, height - 6, f"{edges[1]:.3g}"),
    ]
    return svg(body, height, title, width)


def _grid(up: Scale, title: str, unit: str) -> list[Markup]:
    body = []
    for tick in up.ticks:
        y = up(tick)
        body.append(_line("grid", y))
        body.append(_text("label", LEFT - 6, y + 4, f"{tick:.6g}"))
    label = f"{title}, {unit}" if unit else title
    body.append(_text("axis", 8, 18, label))
    return body


def _levels(
    up: Scale, levels: Sequence[tuple[str, float, str]], above: bool = True
) -> list[Markup]:
    """Lines across with their names, which keep clear of each other."""
    ordered = sorted(levels, key=lambda level: -level[1])
    body = []
    for index, (label, value, style) in enumerate(ordered):
        y = up(value)
        text = y - 6 if index == 0 and above else y + 17
        body.append(_line(style, y))
        body.append(_text("level", WIDTH - RIGHT - 2, text, label))
    return body


def _mark(x: float, y: float, point: Point) -> Markup:
    """Shapes differ as well as colours: filled, hollow, crossed."""
    if point.style == "none":
        return Markup()
    told = "failed" if point.value is None else f"{point.sign} {point.value:.6g}".strip()
    title = element("title", f"trial {point.number}: {told} {point.remark}".strip())
    if point.style == "failed":
        d = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
        return element("path", title, class_="failed", d=d)
    dot = element("circle", title, class_=point.style, cx=f"{x:.1f}", cy=f"{y:.1f}", r=5)
    if point.sign not in ("≤", "≥"):
        return dot
    # An arrow to where the score lies, somewhere.
    way = 1 if point.sign == "≤" else -1
    d = f"M{x:.1f} {y + 5 * way:.1f}v{9 * way}m-3 {-4 * way}l3 {4 * way}l3 {-4 * way}"
    return joined([dot, element("path", class_="bound", d=d)])


def _text(style: str, x: float, y: float, text: object) -> Markup:
    return element("text", text, class_=style, x=f"{x:.1f}", y=f"{y:.1f}")


def _line(style: str, y: float) -> Markup:
    height = f"{y:.1f}"
    return element("line", class_=style, x1=LEFT, x2=WIDTH - RIGHT, y1=height, y2=height)


def _box(
    title: Markup,
    style: str,
    place: tuple[float, float],
    size: tuple[float, float],
    rx: int | None = None,
) -> Markup:
    x, y, width, height = (f"{number:.1f}" for number in (*place, *size))
    return element("rect", title, class_=style, x=x, y=y, width=width, height=height, rx=rx)


def svg(body: Sequence[Markup], height: float, title: str, width: float = WIDTH) -> Markup:
    box = f"0 0 {width:g} {height:g}"
    return element("svg", joined(*body), viewBox=box, role="img", aria_label=title)
