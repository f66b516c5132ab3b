"""The report as one HTML file: no server, no network. What it shows; the templates say how."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from lpot.core import words
from lpot.core.report import OpRow, Report
from lpot.core.tensors import Contrast
from lpot.report.drawing import graph_plot
from lpot.report.markup import asset, render
from lpot.report.next_step import first_line, next_steps
from lpot.report.op_table import op_table
from lpot.report.proof import before_after, cards, waterfall
from lpot.report.svg import bar_lengths, histogram_plot
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
    if result["baseline"] and result["accuracy"] is not None:
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
