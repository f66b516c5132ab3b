"""The search as it is shown: plots and a table of the trials; one trial is a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lpot.core import words
from lpot.core.results.report import Report, TrialRow
from lpot.report.svg import Point, pareto_plot, search_plot

SHOWN_TRIALS = 500
LONGEST_TEXT = 2000  # characters of an error or a note
HEAD = ("trial", "accuracy", "bar", "FP32 ops", "speed ×", "seconds", "remarks")


def levels(report: Report) -> list[tuple[str, float, str]]:
    """FP32 and the bar, as lines across a plot of accuracies."""
    baseline = report.result["baseline"]
    found = []
    if baseline:
        found.append((f"FP32 {baseline['accuracy']:.6g}", float(baseline["accuracy"]), "base"))
    if report.bar is not None:
        found.append((f"bar {report.bar:.6g}", report.bar, "bar"))
    return found


def speeds(report: Report) -> dict[int, float]:
    """How many times as fast as FP32 each trial is, by number.

    A trial is timed briefly. The winner is measured with care in the end: the others are placed by
    their time relative to its, so that one page has one figure for the winner.
    """
    result = report.result
    brief = {row.number: row.latency for row in report.trials if row.latency}
    if result["speed"] and result["best"] in brief:
        return {n: result["speed"] * brief[result["best"]] / t for n, t in brief.items()}
    before = (result["baseline"] or {}).get("latency")
    return {n: before / t for n, t in brief.items()} if before else {}


def search(report: Report) -> dict[str, Any]:
    """Accuracy and speed by trial, and the trials as a table, for the template."""
    shown = report.trials[-SHOWN_TRIALS:]
    fast = speeds(report)
    plots = []
    if len(shown) > 1:
        accuracy = [
            Point(row.number, row.value, _style(row), _remark(row), row.sign) for row in shown
        ]
        plots.append(search_plot(accuracy, levels(report), "accuracy"))
    if len(shown) > 1 and len(fast) > 1:
        timed = [Point(row.number, fast.get(row.number), _timed_style(row)) for row in shown]
        level = [("FP32", 1.0, "base")]
        plots.append(search_plot(timed, level, "speed (× FP32)"))
    return {
        "sentence": _sentence(report, shown),
        "plots": plots,
        "order": "" if report.higher_is_better else " Lower is better.",
        "head": HEAD,
        "rows": [_trial(row, fast) for row in shown] if len(shown) > 1 else [],
        "hidden": len(report.trials) - len(shown),
    }


def _sentence(report: Report, shown: tuple[TrialRow, ...]) -> str:
    if not shown:
        return "None yet." if report.state == "running" else "No trials were run."
    if len(shown) > 1:
        return ""
    (row,) = shown
    if row.error:
        return f"The only trial failed after {words.duration(row.seconds)}: {_remark(row)}"
    kept = "every op that can be" if not row.float_ops else f"all but {row.float_ops} of the ops"
    held = "One trial was enough" if row.met else "The only trial missed the bar"
    return f"{held}: {kept} in low precision, accuracy {row.shown}, {words.duration(row.seconds)}."


def _style(row: TrialRow) -> str:
    return "failed" if row.error or row.value is None else "met" if row.met else "missed"


def _timed_style(row: TrialRow) -> str:
    return "none" if row.latency is None else _style(row)


def _remark(row: TrialRow) -> str:
    remarks = [
        "recalled" if row.recalled else "",
        _stopped(row) if row.raced_out else "",
        (row.error or "")[:LONGEST_TEXT],
    ]
    return " ".join(word for word in remarks if word)


def _stopped(row: TrialRow) -> str:
    why = "the result was clear" if row.met else "out of reach"
    return f"stopped after {row.samples} samples: {why}"


def _trial(row: TrialRow, fast: dict[int, float]) -> dict[str, Any]:
    speed = fast.get(row.number)
    return {
        "number": row.number,
        "accuracy": row.value,
        "shown": row.shown,
        "style": _style(row),
        "float_ops": row.float_ops,
        "speed": speed,
        "speed_shown": "" if speed is None else f"{speed:.2f}",
        "seconds": row.seconds,
        "seconds_shown": words.digits(row.seconds),
        "remark": _remark(row),
    }


def pareto(report: Report) -> dict[str, Any] | None:
    """Accuracy against speed; nothing where there is but one trial to show."""
    fast = speeds(report)
    timed = [row for row in report.trials if row.number in fast and row.value is not None]
    if len(timed) < 2:
        return None
    points = [
        (fast[row.number], Point(row.number, row.value, _style(row), sign=row.sign))
        for row in timed
    ]
    baseline = report.result["baseline"]
    start = (1.0, float(baseline["accuracy"])) if baseline else None
    left = len(report.trials) - len(timed)
    most = f" Not timed: {words.some(left, 'trial')}, which missed the bar." if left else ""
    return {
        "plot": pareto_plot(
            points, front(timed, report.higher_is_better), levels(report)[1:], start
        ),
        "note": "Trials were timed briefly, only to choose among them; they are shown relative to "
        f"the winner, whose speed was measured at the end.{most}",
    }


def front(rows: Iterable[TrialRow], higher_is_better: bool) -> list[int]:
    """Numbers of the trials that no other beats in both accuracy and latency."""
    sign = 1.0 if higher_is_better else -1.0
    found: list[int] = []
    best = float("-inf")
    for row in sorted(rows, key=lambda row: (row.latency or 0.0, -sign * (row.value or 0.0))):
        gain = sign * (row.value or 0.0)
        if gain > best and not row.raced_out:
            best = gain
            found.append(row.number)
    return found
