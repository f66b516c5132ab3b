"""The report as one HTML file: no server, no network. What it shows; the templates say how."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from lpot.core import words
from lpot.core.report import OpRow, Report, TrialRow
from lpot.core.tensors import Contrast
from lpot.report.drawing import graph_plot
from lpot.report.markup import asset, render
from lpot.report.next_step import first_line, next_steps
from lpot.report.op_table import op_table
from lpot.report.svg import Point, bars_plot, histogram_plot, pareto_plot, search_plot

WORST = 20  # ops in the bar chart
SHOWN_TRIALS = 500
LONGEST_TEXT = 2000  # characters of an error or a note
HEAD = ("trial", "accuracy", "bar", "FP32 ops", "latency ms", "seconds", "remarks")


def page(report: Report, live: bool = False) -> str:
    """The whole page; `live` makes it ask its server for news."""
    body = render(
        "page.report.html",
        verdict=_verdict(report),
        cards=_cards(report),
        trials=search(report),
        pareto=_pareto(report),
        harm=_harm(report.ops),
        figures=[figure(item) for item in report.tensors],
        profile=report.profile,
        ops=op_table(report.ops),
        graphs=_graphs(report),
        notes=[str(note)[:LONGEST_TEXT] for note in report.result["notes"]],
        environment=list(report.environment.items()),
        config=report.config,
    )
    title = f"{report.name} · {report.framework}" if report.framework else report.name
    return document(title, body, live)


def document(title: str, body: Markup, live: bool = False) -> str:
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
        )
    )


def _verdict(report: Report) -> dict[str, Any]:
    result = report.result
    first, style = first_line(report)
    lines = []
    if result["baseline"] and result["accuracy"] is not None:
        before, after = result["baseline"]["accuracy"], result["accuracy"]
        goal = f"; {result['goal']}" if result["goal"] else ""
        lines.append(f"Accuracy {after:.6g} against {before:.6g} in FP32{goal}.")
    if result["faster"] and result["met"] is not False:
        lines.append("Faster than FP32 here: use the quantized model.")
    elif result["faster"] is False:
        lines.append("Slower than FP32 here.")
    return {"first": first, "style": style, "lines": lines, "steps": next_steps(report)}


def _cards(report: Report) -> list[tuple[str, str]]:
    result = report.result
    sizes = result["bytes"] or {}
    share = f"{sizes['best'] / sizes['fp32']:.0%}" if sizes.get("fp32") else "?"
    speed = "not measured" if result["speed"] is None else f"{result['speed']:.2f} ×"
    doubtful = result["speed"] is not None and result["faster"] is None
    return [
        (
            "speed of FP32 (not significant)" if doubtful else "speed of FP32",
            speed if report.state == "finished" else "at the end",
        ),
        ("of the size", share),
        ("evaluations", str(result["evaluations"])),
        ("ops left in FP32", str(len(result["fp32_ops"]))),
    ]


def levels(report: Report) -> list[tuple[str, float, str]]:
    """FP32 and the bar, as lines across a plot of accuracies."""
    baseline = report.result["baseline"]
    found = []
    if baseline:
        found.append((f"FP32 {baseline['accuracy']:.6g}", float(baseline["accuracy"]), "base"))
    if report.bar is not None:
        found.append((f"bar {report.bar:.6g}", report.bar, "bar"))
    return found


def search(report: Report) -> dict[str, Any]:
    """Accuracy and latency by trial, and the trials as a table, for the template."""
    shown = report.trials[-SHOWN_TRIALS:]
    accuracy = [Point(row.number, row.accuracy, _style(row), _remark(row)) for row in shown]
    plots = [search_plot(accuracy, levels(report), "accuracy")] if shown else []
    if any(row.latency is not None for row in shown):
        baseline = (report.result["baseline"] or {}).get("latency")
        level = [(f"FP32 {baseline * 1e3:.4g}", baseline * 1e3, "base")] if baseline else []
        latency = [
            Point(r.number, None if r.latency is None else r.latency * 1e3, _timed_style(r))
            for r in shown
        ]
        plots.append(search_plot(latency, level, "latency", "ms"))
    return {
        "empty": "None yet." if report.state == "running" else "No trial was made.",
        "plots": plots,
        "order": "" if report.higher_is_better else " Lower is better.",
        "head": HEAD,
        "rows": [_trial(row) for row in shown],
        "hidden": len(report.trials) - len(shown),
    }


def _style(row: TrialRow) -> str:
    return "failed" if row.error or row.accuracy is None else "met" if row.met else "missed"


def _timed_style(row: TrialRow) -> str:
    return "none" if row.latency is None else _style(row)


def _remark(row: TrialRow) -> str:
    remarks = [
        "recalled" if row.recalled else "",
        f"stopped after {row.samples} samples: out of reach" if row.raced_out else "",
        (row.error or "")[:LONGEST_TEXT],
    ]
    return " ".join(word for word in remarks if word)


def _trial(row: TrialRow) -> dict[str, Any]:
    accuracy = "" if row.accuracy is None else f"{row.accuracy:.6g}"
    return {
        "number": row.number,
        "accuracy": row.accuracy,
        "shown": f"≥ {accuracy}" if row.raced_out else accuracy,
        "style": _style(row),
        "float_ops": row.float_ops,
        "latency": row.latency,
        "latency_shown": "" if row.latency is None else f"{row.latency * 1e3:.3g}",
        "seconds": row.seconds,
        "seconds_shown": f"{row.seconds:.2f}",
        "remark": _remark(row),
    }


def _pareto(report: Report) -> dict[str, Any] | None:
    timed = [row for row in report.trials if row.latency is not None and row.accuracy is not None]
    if not timed:
        return None
    points = [
        ((row.latency or 0.0) * 1e3, Point(row.number, row.accuracy, _style(row))) for row in timed
    ]
    baseline = report.result["baseline"] or {}
    start = None
    if baseline.get("latency"):
        start = (baseline["latency"] * 1e3, float(baseline["accuracy"]))
    left = len(report.trials) - len(timed)
    most = f" Not timed: {words.some(left, 'trial')}, which missed the bar." if left else ""
    return {
        "plot": pareto_plot(
            points, front(timed, report.higher_is_better), levels(report)[1:], start
        ),
        "note": "A quick look at the clock during the search, to choose by; the speed above was "
        f"measured apart.{most}",
    }


def front(rows: Iterable[TrialRow], higher_is_better: bool) -> list[int]:
    """Numbers of the trials that no other beats in both accuracy and latency."""
    sign = 1.0 if higher_is_better else -1.0
    found: list[int] = []
    best = float("-inf")
    for row in sorted(rows, key=lambda row: (row.latency or 0.0, -sign * (row.accuracy or 0.0))):
        gain = sign * (row.accuracy or 0.0)
        if gain > best and not row.raced_out:
            best = gain
            found.append(row.number)
    return found


def _harm(ops: Sequence[OpRow]) -> dict[str, Any] | None:
    ranked = [(op, op.harm) for op in ops if op.harm]
    text = "Relative error of the outputs with this op alone in low precision, without labels."
    if not ranked:
        ranked = [(op, 10 ** (-op.sqnr / 10)) for op in ops if op.sqnr is not None]
        text = (
            "Relative error of each op's own output in the tuned model, on one calibration batch."
        )
    if not ranked:
        return None
    worst = sorted(ranked, key=lambda item: -(item[1] or 0.0))[:WORST]
    rows = [
        (op.name, float(value or 0.0), "float" if op.precision == "fp32" else "low")
        for op, value in worst
    ]
    return {"text": text, "plot": bars_plot(rows, "harm by op")}


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


def _graphs(report: Report) -> tuple[Markup, Markup] | None:
    before, after = report.graphs.get("fp32"), report.graphs.get("best")
    if not before or not after:
        return None
    low = frozenset(op.name for op in report.ops if not op.precision.startswith(("fp", "bf")))
    return (
        graph_plot(before, frozenset(), "the graph in FP32"),
        graph_plot(after, low, "the tuned graph"),
    )
