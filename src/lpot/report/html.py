"""The report as one HTML file: no server, no network. What it shows; the templates say how."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from lpot.core import words
from lpot.core.results.report import GraphNode, OpRow, Report
from lpot.core.results.tensors import Contrast
from lpot.report.markup import asset, element, render
from lpot.report.next_step import first_line, next_steps
from lpot.report.proof import before_after, cards, waterfall
from lpot.report.svg import bar_lengths, histogram_plot, svg
from lpot.report.trials import LONGEST_TEXT, pareto, search

WORST = 20  # ops in the bar chart


def page(report: Report, live: bool = False, now: str = "", back: str = "") -> str:
    """The whole page; `live` makes it ask its server for news, `now` is what goes on already."""
    body = render(
        "page.report.html",
        verdict=_verdict(report),
        cards=cards(report),
        table=before_after(report),
        usage=report.result["usage"],
        place=report.result["path"],
        waterfall=waterfall(report),
        trials=search(report),
        pareto=pareto(report),
        sensitivity=_sensitivity(report.ops),
        figures=[figure(item) for item in report.tensors],
        profile=_profile(report),
        ops=op_table(report.ops),
        graphs=_graphs(report),
        notes=[str(note)[:LONGEST_TEXT] for note in report.result["notes"]],
        environment=list(report.environment.items()),
        config=report.config,
    )
    title = f"{report.name} · {report.framework}" if report.framework else report.name
    return document(title, body, live, now, back)


def document(title: str, body: Markup, live: bool = False, now: str = "", back: str = "") -> str:
    """A page around a body, with its style and script inside. Nothing else may run in it."""
    code = asset("page.js")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return str(
        render(
            "page.document.html",
            policy=Markup(policy + ("; connect-src 'self'" if live else "")),
            title=words.one_line(title),
            style=Markup(asset("page.css")),
            code=Markup(code),
            body=body,
            live=live,
            now=now,
            back=back,
        )
    )


def _verdict(report: Report) -> dict[str, Any]:
    result = report.result
    first, style = first_line(report)
    lines = []
    figures = (result["verdict"] or {}).get("figures", "")
    if figures and report.state == "finished":
        lines.append(f"{figures[:1].upper()}{figures[1:]}.")
    elif result["baseline"] and result["accuracy"] is not None:
        before, after = result["baseline"]["accuracy"], result["accuracy"]
        lines.append(f"Accuracy {after:.6g} against {before:.6g} in FP32{_lost(report)}.")
    if result["faster"] and result["met"] is not False:
        lines.append("Faster than FP32 here: use the quantized model.")
    elif result["faster"] is False:
        lines.append("Slower than FP32 here.")
    return {"first": first, "style": style, "lines": lines, "steps": next_steps(report)}


def _lost(report: Report) -> str:
    lost, goal = str(report.result["drop"]), report.result["goal"]
    if not lost:
        return f"; {goal}" if goal else ""
    word = f"a gain of {lost[1:]}" if lost.startswith("-") else f"a drop of {lost}"
    return f": {word}, where {report.result['allowed']} may be lost"


def _sensitivity(ops: Sequence[OpRow]) -> dict[str, Any] | None:
    """Sensitivity of ops, each alone in low precision; accumulated errors only where it is all."""
    ranked = [(op, op.sensitivity) for op in ops if op.sensitivity]
    text = "Relative error of the model's outputs with this op alone in low precision."
    if not ranked:
        ranked = [(op, 10 ** (-op.sqnr / 10)) for op in ops if op.sqnr is not None]
        text = (
            "Relative error of each op's own output in the tuned model, including errors of the "
            "ops before it: late ops look worse than they are."
        )
    if not ranked:
        return None
    worst = sorted(ranked, key=lambda item: -(item[1] or 0.0))[:WORST]
    values = [float(value or 0.0) for _, value in worst]
    lengths, is_log = bar_lengths(values)
    rows = [
        (op.name, f"{value:.2g}", length, "float" if op.precision == "fp32" else "low")
        for (op, _), value, length in zip(worst, values, lengths, strict=True)
    ]
    scale = "The scale is logarithmic." if is_log else "The scale is linear, from 0."
    return {"text": f"{text} {scale}", "rows": rows}


def figure(item: Contrast) -> dict[str, Any]:
    """One op's output or weight in both precisions, for the template."""
    low, exact = item.low_range, item.fp32_range
    return {
        "name": words.one_line(item.op.name),
        "kind": item.op.kind,
        "plot": histogram_plot(
            item.edges, item.fp32_counts, item.low_counts, f"values of {item.op}"
        ),
        "first": f"{item.what}: {item.sqnr:.1f} dB, largest error {item.largest_error:.3g}",
        "second": f"FP32 {exact[0]:.3g} to {exact[1]:.3g}, tuned {low[0]:.3g} to {low[1]:.3g}",
        "worst": ", ".join(f"{number} ({sqnr:.1f} dB)" for number, sqnr in item.worst_samples),
    }


def _profile(report: Report) -> str:
    """Which ops lose; the times themselves are in the waterfall, of one source."""
    slow = [op.name for op in report.ops if op.reason and op.precision != "fp32"]
    more = f" and {len(slow) - 3} more" if len(slow) > 3 else ""
    return f"Slower in low precision than in FP32: {', '.join(slow[:3])}{more}." if slow else ""


def _graphs(report: Report) -> tuple[Markup, Markup] | None:
    before, after = report.graphs.get("fp32"), report.graphs.get("best")
    if not before or not after:
        return None
    low = frozenset(op.name for op in report.ops if not op.precision.startswith(("fp", "bf")))
    return (
        graph_plot(before, frozenset(), "the graph in FP32"),
        graph_plot(after, low, "the tuned graph"),
    )


# -- A small graph drawn from top to bottom, in layers.


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


# -- The table of ops: its data once, as JSON; the first rows as HTML, for paper and no script.


SHOWN = 200  # rows written as HTML
MOST = 15_000  # rows in the page; report.json has all of them
LONGEST_NAME, LONGEST_REASON = 160, 240  # characters


def op_table(ops: Sequence[OpRow]) -> dict[str, Any] | None:
    """Sortable and filterable by page.js, which draws as many rows as are looked at."""
    if not ops:
        return None
    columns = _columns(ops)
    kept = list(ops) if len(ops) <= SHOWN else sorted(ops, key=_badness)[:MOST]
    rows = [[cell(op) for _, _, cell in columns] for op in kept]
    kinds = [kind for _, kind, _ in columns]
    data = {"columns": [[name, kind] for name, kind, _ in columns], **_packed(columns, rows)}
    return {
        "columns": [(name, kind) for name, kind, _ in columns],
        "shown": [
            [(_shown(value), kind) for value, kind in zip(row, kinds, strict=True)]
            for row in rows[:SHOWN]
        ],
        "count": len(rows),
        "left": len(ops) - len(kept),
        "choices": [
            (name, sorted({_cut(word, LONGEST_NAME) for word in words}))
            for name, words in (
                ("kind", [op.kind for op in kept]),
                ("precision", [op.precision for op in kept]),
            )
        ],
        "data": Markup(as_script(data)),
    }


def as_script(value: Any) -> str:
    """JSON that can't end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _columns(ops: Sequence[OpRow]) -> list[tuple[str, str, Any]]:
    """(title, kind of value, how to get it); columns that nobody filled are left out."""
    now = sum(op.seconds or 0.0 for op in ops)
    before = sum(op.fp32_seconds or 0.0 for op in ops)
    every: list[tuple[str, str, Any]] = [
        ("op", "name", lambda op: _cut(op.name, LONGEST_NAME)),
        ("kind", "word", lambda op: _cut(op.kind, LONGEST_NAME)),
        ("precision", "word", lambda op: _cut(op.precision, LONGEST_NAME)),
        ("algorithm", "word", lambda op: _cut(op.how, LONGEST_NAME)),
        ("SQNR dB", "number", lambda op: _figures(op.sqnr, 3)),
        ("weights dB", "number", lambda op: _figures(op.weight_sqnr, 3)),
        ("sensitivity", "number", lambda op: _figures(op.sensitivity, 2)),
        ("% of time", "number", lambda op: _share(op.seconds, now)),
        ("% of FP32's", "number", lambda op: _share(op.fp32_seconds, before)),
        ("why FP32, or slow", "word", lambda op: _cut(op.reason, LONGEST_REASON)),
    ]
    always = ("op", "kind", "precision")
    return [c for c in every if c[0] in always or any(c[2](op) not in ("", None) for op in ops)]


def _packed(columns: Sequence[tuple[str, str, Any]], rows: Sequence[list[Any]]) -> dict[str, Any]:
    """Words that repeat are written once."""
    words: dict[str, int] = {}
    packed = [
        [
            words.setdefault(value, len(words)) if kind == "word" else value
            for (_, kind, _), value in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    return {"words": list(words), "rows": packed}


def _badness(op: OpRow) -> tuple[float, float]:
    return -(op.sensitivity or 0.0), 1e9 if op.sqnr is None else op.sqnr


def _figures(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def _share(seconds: float | None, whole: float) -> float | None:
    """Shares, not times: the profiler's clock is another than the one behind the speed."""
    return None if seconds is None or not whole else _figures(100 * seconds / whole, 2)


def _cut(text: str, most: int) -> str:
    """Long names are told apart by their ends."""
    clean = text.encode("utf-8", "replace").decode()  # half a character can't be written
    half = most // 2
    return clean if len(clean) <= most else f"{clean[:half]}…{clean[-half:]}"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
