"""The report as one HTML file: no server, no network, every word from outside escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from typing import Any

from lpot.core.report import OpRow, Report, TrialRow
from lpot.report.svg import bars_plot, search_plot

WORST = 20  # ops in the bar chart


def page(report: Report) -> str:
    """The whole page."""
    here = files("lpot.report")
    parts = [
        _verdict(report),
        _cards(report.result),
        _section("The search", _search(report)),
        _section("Which ops hurt", _harm(report.ops)),
        _section("Every op", _ops(report.ops)),
        _section("Notes", _notes(report.result)),
        _section("How to repeat it", _environment(report)),
    ]
    title = escape(f"{report.name} · {report.framework}")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>lpot: {title}</title><style>{(here / 'page.css').read_text('utf-8')}</style>"
        "</head>"
        f"<body><h1>{title}</h1>{''.join(parts)}<footer>lpot</footer>"
        f"<script>{(here / 'page.js').read_text('utf-8')}</script></body></html>"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _verdict(report: Report) -> str:
    result = report.result
    met = result["met"]
    style = {True: "met", False: "missed"}.get(met, "")
    first = {
        True: "The bar is met.",
        False: "The bar was not reached: this is the best found.",
    }.get(met, "Not evaluated: no eval function and no metric were given.")
    lines = [f'<p class="first">{first}</p>']
    if result["baseline"] and result["accuracy"] is not None:
        before, after = result["baseline"]["accuracy"], result["accuracy"]
        lines.append(
            f"<p>Accuracy {after:.6g} against {before:.6g} in FP32; {escape(result['goal'])}.</p>"
        )
    advice = {
        True: "Faster than FP32 here: use the quantized model.",
        False: "Slower than FP32 here: stay with FP32 on this machine.",
    }.get(result["faster"])
    if advice:
        lines.append(f"<p>{advice}</p>")
    return f'<div class="verdict {style}">{"".join(lines)}</div>'


def _cards(result: Mapping[str, Any]) -> str:
    sizes = result["bytes"] or {}
    cards = [
        ("times faster", "not measured" if result["speed"] is None else f"{result['speed']:.2f}"),
        ("of the size", f"{sizes['best'] / sizes['fp32']:.0%}" if sizes.get("fp32") else "?"),
        ("evaluations", str(result["evaluations"])),
        ("ops left in FP32", str(len(result["fp32_ops"]))),
    ]
    body = "".join(f'<div class="card"><b>{escape(v)}</b><span>{k}</span></div>' for k, v in cards)
    return f'<div class="cards">{body}</div>'


def _search(report: Report) -> str:
    scored = [row for row in report.trials if row.accuracy is not None]
    plot = ""
    baseline = report.result["baseline"]
    if scored and baseline and report.bar is not None:
        points = [(row.number, float(row.accuracy or 0.0), row.met) for row in scored]
        plot = search_plot(points, baseline["accuracy"], report.bar)
    head = ("trial", "accuracy", "bar", "FP32 ops", "seconds", "remarks")
    rows = "".join(_trial(row) for row in report.trials)
    return plot + (_table(head, rows) if rows else "<p>No trial was made.</p>")


def _trial(row: TrialRow) -> str:
    accuracy = "" if row.accuracy is None else f"{row.accuracy:.6g}"
    remarks = [
        "recalled" if row.recalled else "",
        f"stopped after {row.samples} samples: out of reach" if row.raced_out else "",
        row.error or "",
    ]
    cells = [
        _number(str(row.number), row.number),
        _number(f"≥ {accuracy}" if row.raced_out else accuracy, row.accuracy or 0),
        f"<td>{'failed' if row.error else 'met' if row.met else 'missed'}</td>",
        _number(str(row.float_ops), row.float_ops),
        _number(f"{row.seconds:.2f}", row.seconds),
        f"<td>{escape(' '.join(word for word in remarks if word))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _harm(ops: Iterable[OpRow]) -> str:
    ranked = sorted((op for op in ops if op.harm is not None), key=lambda op: -(op.harm or 0.0))
    if not ranked:
        return "<p>No ranking was needed.</p>"
    rows = [
        (op.name, float(op.harm or 0.0), "float" if op.precision == "fp32" else "low")
        for op in ranked[:WORST]
    ]
    return (
        "<p>Relative error of the outputs with this op alone in INT8, from calibration data.</p>"
        + bars_plot(rows)
    )


def _ops(ops: Iterable[OpRow]) -> str:
    rows = "".join(
        f"<tr><td>{escape(op.name)}</td><td>{escape(op.kind)}</td><td>{escape(op.precision)}</td>"
        f"<td>{escape(op.how)}</td>"
        f"{_number('' if op.harm is None else f'{op.harm:.2g}', op.harm or 0)}"
        f"<td>{escape(op.reason)}</td></tr>"
        for op in ops
    )
    head = ("op", "kind", "precision", "how", "harm", "why FP32")
    filtered = (
        '<p class="hint"><input id="filter" placeholder="filter ops" aria-label="filter ops"></p>'
    )
    return filtered + _table(head, rows, "ops")


def _notes(result: Mapping[str, Any]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in result["notes"])
    return f"<ul>{items}</ul>" if items else ""


def _environment(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{escape(str(key))}</td><td>{escape(str(value))}</td></tr>"
        for key, value in report.environment.items()
    )
    yaml = f"<details><summary>configuration</summary><pre>{escape(report.config)}</pre></details>"
    return f"<table>{rows}</table>{yaml if report.config else ''}"


def _number(text: str, value: float) -> str:
    return f'<td class="n" data-v="{value}">{escape(text)}</td>'


def _table(head: Iterable[str], rows: str, name: str = "") -> str:
    cells = "".join(f"<th><button>{escape(word)}</button></th>" for word in head)
    place = f' id="{name}"' if name else ""
    head_row = f"<thead><tr>{cells}</tr></thead>"
    return f'<table class="sortable"{place}>{head_row}<tbody>{rows}</tbody></table>'
