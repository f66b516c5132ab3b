"""The report as one HTML file: no server, no network, every word from outside escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from lpot.core.report import OpRow, Report, TrialRow
from lpot.core.tensors import Contrast
from lpot.report import words
from lpot.report.drawing import graph_plot
from lpot.report.next_step import first_line, next_steps
from lpot.report.op_table import op_table
from lpot.report.svg import Point, bars_plot, histogram_plot, pareto_plot, search_plot

WORST = 20  # ops in the bar chart
SHOWN_TRIALS = 500
LONGEST_TEXT = 2000  # characters of an error or a note


def page(report: Report, live: bool = False) -> str:
    """The whole page; `live` makes it ask its server for news."""
    parts = [
        _verdict(report),
        _cards(report),
        _section("search", "The search", search(report)),
        _section("pareto", "Accuracy against speed", _pareto(report)),
        _section("harm", "Which ops hurt", _harm(report.ops)),
        _section("ranges", "The worst ops, FP32 against low precision", _ranges(report.tensors)),
        _section("every", "Every op", _profile(report.profile) + op_table(report.ops)),
        _section("graphs", "The graph before and after", _graphs(report)),
        _section("notes", "Notes", _notes(report.result["notes"])),
        _section("repeat", "How to repeat it", _environment(report)),
    ]
    title = f"{report.name} · {report.framework}" if report.framework else report.name
    return document(title, "".join(parts), live)


def document(title: str, body: str, live: bool = False) -> str:
    """A page around a body, with its style and script inside. Nothing else may run in it."""
    code = asset("page.js")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    policy += "; connect-src 'self'" if live else ""
    name = escape(words.one_line(title))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><title>lpot: {name}</title>'
        f"<style>{asset('page.css')}</style></head>"
        f"<body{' data-live' if live else ''}><main><h1>{name}</h1>{body}</main>"
        f"<footer>lpot</footer><script>{code}</script></body></html>"
    )


@cache
def asset(name: str) -> str:
    return (files("lpot.report") / name).read_text("utf-8")


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>' if body else ""


def _verdict(report: Report) -> str:
    result = report.result
    first, style = first_line(report)
    lines = [f'<p class="first">{escape(first)}</p>']
    if result["baseline"] and result["accuracy"] is not None:
        before, after = result["baseline"]["accuracy"], result["accuracy"]
        goal = f"; {result['goal']}" if result["goal"] else ""
        lines.append(f"<p>Accuracy {after:.6g} against {before:.6g} in FP32{escape(goal)}.</p>")
    if result["faster"] and result["met"] is not False:
        lines.append("<p>Faster than FP32 here: use the quantized model.</p>")
    elif result["faster"] is False:
        lines.append("<p>Slower than FP32 here.</p>")
    steps = "".join(f"<li>{escape(step)}</li>" for step in next_steps(report))
    if steps:
        lines.append(f'<p class="next">What to do next</p><ul>{steps}</ul>')
    return f'<div class="verdict {style}">{"".join(lines)}</div>'


def _cards(report: Report) -> str:
    result = report.result
    sizes = result["bytes"] or {}
    share = f"{sizes['best'] / sizes['fp32']:.0%}" if sizes.get("fp32") else "?"
    speed = "not measured" if result["speed"] is None else f"{result['speed']:.2f} ×"
    doubtful = result["speed"] is not None and result["faster"] is None
    cards = [
        (
            "speed of FP32 (not significant)" if doubtful else "speed of FP32",
            speed if report.state == "finished" else "at the end",
        ),
        ("of the size", share),
        ("evaluations", str(result["evaluations"])),
        ("ops left in FP32", str(len(result["fp32_ops"]))),
    ]
    body = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in cards
    )
    return f'<div class="cards">{body}</div>'


def levels(report: Report) -> list[tuple[str, float, str]]:
    """FP32 and the bar, as lines across a plot of accuracies."""
    baseline = report.result["baseline"]
    found = []
    if baseline:
        found.append((f"FP32 {baseline['accuracy']:.6g}", float(baseline["accuracy"]), "base"))
    if report.bar is not None:
        found.append((f"bar {report.bar:.6g}", report.bar, "bar"))
    return found


def search(report: Report) -> str:
    """Accuracy and latency by trial, and the trials as a table."""
    if not report.trials:
        return "<p>No trial was made.</p>" if report.state != "running" else "<p>None yet.</p>"
    shown = report.trials[-SHOWN_TRIALS:]
    accuracy = [Point(row.number, row.accuracy, _style(row), _remark(row)) for row in shown]
    plots = search_plot(accuracy, levels(report), "accuracy")
    timed = [row for row in shown if row.latency is not None]
    if timed:
        baseline = (report.result["baseline"] or {}).get("latency")
        level = [(f"FP32 {baseline * 1e3:.4g}", baseline * 1e3, "base")] if baseline else []
        latency = [
            Point(r.number, None if r.latency is None else r.latency * 1e3, _timed_style(r))
            for r in shown
        ]
        plots += search_plot(latency, level, "latency", "ms")
    head = ("trial", "accuracy", "bar", "FP32 ops", "latency ms", "seconds", "remarks")
    table = _table(head, "".join(map(_trial, shown)))
    legend = (
        '<p class="hint">Filled: holds the bar. Hollow: misses it. Crossed: failed.'
        f"{_best_words(report)}</p>"
    )
    hidden = len(report.trials) - len(shown)
    more = f'<p class="hint">{hidden} earlier trials are in report.json.</p>' if hidden else ""
    return f'<div class="plots fit">{plots}</div>{legend}<div class="wide">{table}</div>{more}'


def _best_words(report: Report) -> str:
    return "" if report.higher_is_better else " Lower is better."


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


def _trial(row: TrialRow) -> str:
    accuracy = "" if row.accuracy is None else f"{row.accuracy:.6g}"
    bounded = f"≥ {accuracy}" if row.raced_out else accuracy
    style = _style(row)
    cells = [
        _number(str(row.number), row.number),
        _number(bounded, row.accuracy),
        f'<td class="is-{style}">{style}</td>',
        _number(str(row.float_ops), row.float_ops),
        _number("" if row.latency is None else f"{row.latency * 1e3:.3g}", row.latency),
        _number(f"{row.seconds:.2f}", row.seconds),
        f"<td>{escape(_remark(row))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _pareto(report: Report) -> str:
    timed = [row for row in report.trials if row.latency is not None and row.accuracy is not None]
    if not timed:
        return ""
    points = [
        ((row.latency or 0.0) * 1e3, Point(row.number, row.accuracy, _style(row))) for row in timed
    ]
    baseline = report.result["baseline"] or {}
    start = None
    if baseline.get("latency"):
        start = (baseline["latency"] * 1e3, float(baseline["accuracy"]))
    plot = pareto_plot(points, front(timed, report.higher_is_better), levels(report)[1:], start)
    left = len(report.trials) - len(timed)
    most = f" Not timed: {words.some(left, 'trial')}, which missed the bar." if left else ""
    note = (
        "A quick look at the clock during the search, to choose by; the speed above was "
        f"measured apart.{most}"
    )
    return f'<div class="plots fit">{plot}</div><p class="hint">{note}</p>'


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


def _harm(ops: Sequence[OpRow]) -> str:
    ranked = [(op, op.harm) for op in ops if op.harm]
    text = "Relative error of the outputs with this op alone in low precision, without labels."
    if not ranked:
        ranked = [(op, 10 ** (-op.sqnr / 10)) for op in ops if op.sqnr is not None]
        text = (
            "Relative error of each op's own output in the tuned model, on one calibration batch."
        )
    if not ranked:
        return ""
    worst = sorted(ranked, key=lambda item: -(item[1] or 0.0))[:WORST]
    rows = [
        (op.name, float(value or 0.0), "float" if op.precision == "fp32" else "low")
        for op, value in worst
    ]
    legend = '<span class="key low"></span>low precision <span class="key float"></span>FP32'
    plot = bars_plot(rows, "harm by op")
    return f'<p class="hint">{text} {legend}</p><div class="plots">{plot}</div>'


def _ranges(found: Iterable[Contrast]) -> str:
    figures = "".join(map(figure, found))
    if not figures:
        return ""
    legend = '<span class="key exact"></span>FP32 <span class="key rounded"></span>tuned'
    hint = f'<p class="hint">Values of an op\'s output; the height is logarithmic. {legend}</p>'
    return f'{hint}<div class="figures">{figures}</div>'


def figure(item: Contrast) -> str:
    """One op's output or weight in both precisions."""
    plot = histogram_plot(item.edges, item.fp32_counts, item.low_counts, f"values of {item.op}")
    low, exact = item.low_range, item.fp32_range
    worst = ""
    if item.worst_samples:
        told = ", ".join(f"{number} ({sqnr:.1f} dB)" for number, sqnr in item.worst_samples)
        worst = f"<br>worst samples {told}"
    return (
        f"<figure><figcaption><b>{escape(words.one_line(item.op.name))}</b> {escape(item.op.kind)}"
        f"</figcaption>{plot}<p>{item.what}: {item.sqnr:.1f} dB, largest error "
        f"{item.largest_error:.3g}<br>FP32 {exact[0]:.3g} to {exact[1]:.3g}, tuned {low[0]:.3g} "
        f"to {low[1]:.3g}{worst}</p></figure>"
    )


def _profile(text: str) -> str:
    return f'<p class="hint">{escape(text)}.</p>' if text else ""


def _graphs(report: Report) -> str:
    before, after = report.graphs.get("fp32"), report.graphs.get("best")
    if not before or not after:
        return ""
    low = frozenset(op.name for op in report.ops if not op.precision.startswith(("fp", "bf")))
    legend = '<span class="key low"></span>low precision; Q and DQ go in and out of it'
    return (
        f'<p class="hint">{legend}</p><div class="sides">'
        f"<div><h3>FP32</h3>{graph_plot(before, frozenset(), 'the graph in FP32')}</div>"
        f"<div><h3>tuned</h3>{graph_plot(after, low, 'the tuned graph')}</div></div>"
    )


def _notes(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(str(note)[:LONGEST_TEXT])}</li>" for note in notes)
    return f"<ul>{items}</ul>" if items else ""


def _environment(report: Report) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(str(key))}</th><td>{escape(str(value))}</td></tr>'
        for key, value in report.environment.items()
    )
    yaml = f"<details><summary>configuration</summary><pre>{escape(report.config)}</pre></details>"
    if not rows and not report.config:
        return ""
    return f'<table class="facts">{rows}</table>{yaml if report.config else ""}'


def _number(text: str, value: float | None) -> str:
    place = "" if value is None else f' data-v="{value}"'
    return f'<td class="n"{place}>{escape(text)}</td>'


def _table(head: Iterable[str], rows: str) -> str:
    cells = "".join(
        f'<th scope="col"><button type="button">{escape(word)}</button></th>' for word in head
    )
    head_row = f"<thead><tr>{cells}</tr></thead>"
    return f'<table class="sortable">{head_row}<tbody>{rows}</tbody></table>'
