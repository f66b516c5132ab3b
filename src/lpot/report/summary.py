"""A report for the terminal: verdict, trials, and the ops that hurt most."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from lpot.core.results.report import OpRow, Report, TrialRow
from lpot.core.words import one_line
from lpot.report.next_step import first_line, next_steps
from lpot.report.table import listing

STYLES = {"met": "green", "missed": "yellow", "open": "cyan"}
MOST_TRIALS = 50  # lines; the page has all of them


def summary(report: Report, shown: int) -> RenderableType:
    """`shown` is how many ops are listed, the most sensitive first, then those left in FP32."""
    result = report.result
    first, style = first_line(report)
    title = f"{report.name} ({report.framework})" if report.framework else report.name
    lines = [Text(f"{one_line(title)}: {first}", f"bold {STYLES[style]}")]
    figures = (result["verdict"] or {}).get("figures", "")
    if figures:
        lines.append(Text(figures))
    elif result["baseline"] and result["accuracy"] is not None:
        before = result["baseline"]["accuracy"]
        lines.append(Text(f"accuracy {result['accuracy']:.6g}, FP32 {before:.6g}"))
    speed = "not measured" if result["speed"] is None else f"{result['speed']:.2f} times FP32"
    speed += ", by CPU time on a busy machine" if result["busy"] else ""
    lines.append(Text(f"speed {speed}; {result['evaluations']} evaluation(s)"))
    lines += [Text(f"next: {step}") for step in next_steps(report)]
    parts: list[RenderableType] = [*lines]
    if report.trials:
        rows = report.trials[-MOST_TRIALS:]
        parts.append(
            listing(
                ("trial", "accuracy", "bar", "FP32 ops", "latency", "remarks"), map(_trial, rows)
            )
        )
    parts += _ops(report, shown)
    parts += [Text(f"note: {note}") for note in result["notes"]]
    return Group(*parts)


def _ops(report: Report, shown: int) -> list[RenderableType]:
    if not report.ops:
        return []
    worst = sorted(report.ops, key=_badness)[:shown]
    head = ("op", "kind", "precision", "sensitivity", "SQNR", "why FP32")
    return [listing(head, map(_op, worst))]


def _badness(op: OpRow) -> tuple[float, float, bool]:
    return -(op.sensitivity or 0.0), 1e9 if op.sqnr is None else op.sqnr, op.precision != "fp32"


def _trial(row: TrialRow) -> tuple[str, ...]:
    bar = "failed" if row.error else "met" if row.met else "missed"
    remark = row.error or ("stopped early" if row.raced_out else "recalled" if row.recalled else "")
    latency = "" if row.latency is None else f"{row.latency * 1e3:.3g} ms"
    return str(row.number), row.shown, bar, str(row.float_ops), latency, one_line(remark)


def _op(row: OpRow) -> tuple[str, ...]:
    sensitivity = "" if row.sensitivity is None else f"{row.sensitivity:.2g}"
    sqnr = "" if row.sqnr is None else f"{row.sqnr:.1f} dB"
    return row.name, row.kind, row.precision, sensitivity, sqnr, row.reason
