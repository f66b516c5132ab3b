"""A small graph drawn from top to bottom, in layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from lpot.core.report import GraphNode
from lpot.report.markup import element
from lpot.report.svg import svg

ROW, WIDE, HIGH, GAP = 40, 118, 22, 10
QUANTIZERS = ("QuantizeLinear", "QuantizeV2", "DynamicQuantizeLinear")
DEQUANTIZERS = ("DequantizeLinear", "Dequantize")
LONGEST = 17  # characters in a box
REACH = 3  # neighbours that decide a node's place


def graph_plot(nodes: Sequence[GraphNode], low: frozenset[str], title: str) -> Markup:
    """`low` names the ops that run in low precision."""
    layers = _layers(nodes)
    width = max(len(layer) for layer in layers) * (WIDE + GAP) + GAP
    places: dict[str, tuple[float, float]] = {}
    for depth, layer in enumerate(layers):
        step = width / len(layer)
        for index, node in enumerate(_ordered(layer, places)):
            places[node.name] = ((index + 0.5) * step, 8 + depth * ROW)
    lines = "".join(
        f"M{places[source][0]:.0f} {places[source][1] + HIGH:.0f}"
        f"L{places[node.name][0]:.0f} {places[node.name][1]:.0f}"
        for node in nodes
        for source in node.reads
        if source in places
    )
    body = [element("path", class_="wire", d=lines)]
    body += [_box(node, places[node.name], node.name in low) for node in nodes]
    return svg(body, len(layers) * ROW + 8, title, width)


def _box(node: GraphNode, place: tuple[float, float], low: bool) -> Markup:
    x, y = place
    style = "input" if node.kind == "input" else "low" if low else "plain"
    text = node.kind if node.kind != "input" else node.name
    if node.kind in QUANTIZERS or node.kind in DEQUANTIZERS:
        style, text = "edge", "Q" if node.kind in QUANTIZERS else "DQ"
    wide = 34 if style == "edge" else WIDE
    shown = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    told = element("title", f"{node.name} ({node.kind})")
    rect = element(
        "rect", told, x=f"{x - wide / 2:.0f}", y=f"{y:.0f}", width=wide, height=HIGH, rx=4
    )
    text_at = element("text", shown, x=f"{x:.0f}", y=f"{y + 15:.0f}")
    return element("g", rect, text_at, class_=style)


def _layers(nodes: Sequence[GraphNode]) -> list[list[GraphNode]]:
    """Each node one layer below the lowest that it reads; a cycle does not hang it."""
    depth: dict[str, int] = {}
    for node in nodes:  # in the graph's own order, which is topological
        depth[node.name] = max((depth[name] + 1 for name in node.reads if name in depth), default=0)
    layers: list[list[GraphNode]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for node in nodes:
        layers[depth[node.name]].append(node)
    return [layer for layer in layers if layer]


def _ordered(
    layer: Sequence[GraphNode], places: Mapping[str, tuple[float, float]]
) -> list[GraphNode]:
    """Each as near as can be to what it reads."""

    def wish(node: GraphNode) -> float:
        known = [places[name][0] for name in node.reads[:REACH] if name in places]
        return sum(known) / len(known) if known else 0.0

    return sorted(layer, key=wish)
