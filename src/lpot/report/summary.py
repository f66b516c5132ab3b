"""A report for the terminal: verdict, trials, and the ops that hurt most."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from lpot.core.report import OpRow, Report, TrialRow
from lpot.report.table import listing


def summary(report: Report, shown: int) -> RenderableType:
    """`shown` is how many ops are listed, the most harmful first, then those left in FP32."""
    result = report.result
    met = {True: ("bar met", "green"), False: ("bar missed, best effort", "yellow")}
    word, style = met.get(result["met"], ("not evaluated", "yellow"))
    lines = [Text(f"{report.name} ({report.framework}): {word}", f"bold {style}")]
    if result["baseline"] and result["accuracy"] is not None:
        before = result["baseline"]["accuracy"]
        lines.append(Text(f"accuracy {result['accuracy']:.6g} against {before:.6g} in FP32"))
    speed = "not measured" if result["speed"] is None else f"{result['speed']:.2f} times FP32's"
    lines.append(Text(f"speed {speed}; {result['evaluations']} evaluation(s)"))
    parts: list[RenderableType] = [*lines]
    if report.trials:
        parts.append(
            listing(("trial", "accuracy", "bar", "FP32 ops", "remarks"), map(_trial, report.trials))
        )
    worst = sorted(report.ops, key=lambda op: (-(op.harm or 0.0), op.precision != "fp32"))[:shown]
    parts.append(listing(("op", "kind", "precision", "harm", "why FP32"), map(_op, worst)))
    parts += [Text(f"note: {note}") for note in result["notes"]]
    return Group(*parts)


def _trial(row: TrialRow) -> tuple[str, ...]:
    accuracy = "" if row.accuracy is None else f"{row.accuracy:.6g}"
    bar = "failed" if row.error else "met" if row.met else "missed"
    remark = row.error or ("raced out" if row.raced_out else "recalled" if row.recalled else "")
    return str(row.number), accuracy, bar, str(row.float_ops), remark


def _op(row: OpRow) -> tuple[str, ...]:
    harm = "" if row.harm is None else f"{row.harm:.2g}"
    return row.name, row.kind, row.precision, harm, row.reason
