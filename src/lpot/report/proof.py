"""Before and after, in figures: each one stands once in the report, and comes from one source."""

from __future__ import annotations

from typing import Any

from lpot.core import words
from lpot.core.measure import fits
from lpot.core.results.report import Report


def cards(report: Report) -> list[tuple[str, str, str]]:
    """(figure, what it is, what stands behind it), the most wanted first."""
    found = [_speed(report)]
    result = report.result
    if result["drop"]:
        gained = str(result["drop"]).startswith("-")
        figure = str(result["drop"]).removeprefix("-")
        range_ = f"{result['drop_range']}; " if result["drop_range"] else ""
        found.append(
            (
                figure,
                "gained over FP32" if gained else "lost against FP32",
                f"{range_}{result['allowed']} may be lost",
            )
        )
    if result["bytes"] and result["bytes"]["fp32"]:  # a model without weights has no size to halve
        before, after = result["bytes"]["fp32"], result["bytes"]["best"]
        found.append((f"{after / before:.0%}", "of the size", words.size_change(before, after)))
    found.append(_ops(report))
    return found


def _speed(report: Report) -> tuple[str, str, str]:
    result = report.result
    if report.state != "finished":
        return "at the end", "speed", "is measured when the search is over"
    if result["speed"] is None:
        return "not measured", "speed", "lpot benchmark compares both models"
    low, high = result["speed_range"] or (None, None)
    spread = "" if low is None or high is None else f"between {low:.2f} and {high:.2f}"
    doubt = "" if result["faster"] is not None else "no significant difference"
    how = "by CPU time, on a busy machine" if result["busy"] else ""
    behind = ", ".join(part for part in (spread, how, doubt) if part)
    return f"{result['speed']:.2f} ×", "the speed of FP32", behind


def _ops(report: Report) -> tuple[str, str, str]:
    result = report.result
    counts = result["precisions"]
    whole = sum(counts.values())
    low = whole - counts.get("fp32", 0)
    kept = len(result["fp32_ops"])
    others = whole - low - kept
    parts = [f"{kept} kept in FP32" if kept else "", f"{others} would not gain" if others else ""]
    if not whole:
        return "–", "ops in low precision", ""
    behind = ", ".join(part for part in parts if part)
    return f"{low} of {whole}", "ops in low precision", behind


def before_after(report: Report) -> dict[str, Any] | None:
    """The table of both models, and what the measurement was made with."""
    result = report.result
    rows: list[tuple[str, ...]] = []
    if result["baseline"] and result["accuracy"] is not None:
        before, after = result["baseline"]["accuracy"], result["accuracy"]
        rows.append(("accuracy", words.accuracy(before), words.accuracy(after), _lost(result)))
    measured = result["measured"]
    span = result["speed_range"]
    agree = measured and (span is None or fits(measured["fp32"], measured["best"], span))
    if measured and agree and not result["busy"]:  # else they say something else than the ratio
        batch = f"a batch of {measured['batch']}" if measured["batch"] > 1 else "a batch of 1"
        both = words.durations([measured["fp32"], measured["best"]])
        rows.append((f"latency of {batch}", *both, _ratio(result)))
        each = [measured["batch"] / seconds for seconds in (measured["fp32"], measured["best"])]
        rows.append(("samples per second", *map(words.digits, each), ""))
    if result["bytes"]:
        before, after = result["bytes"]["fp32"], result["bytes"]["best"]
        rows.append(("size on disk", *words.sizes([before, after]), _share(before, after)))
    if measured and all(measured["memory"]):
        before, after = measured["memory"]
        rows.append(("peak memory", *words.sizes([before, after]), _share(before, after)))
    return {"rows": rows, "about": _about(measured)} if rows else None


def _lost(result: Any) -> str:
    if not result["drop"]:
        return ""
    word = "gain" if str(result["drop"]).startswith("-") else "drop"
    between = f" [{result['drop_range']}]" if result["drop_range"] else ""
    return f"{word} of {str(result['drop']).removeprefix('-')}{between}"


def _ratio(result: Any) -> str:
    low, high = result["speed_range"] or (None, None)
    if result["speed"] is None or low is None:
        return ""
    how = ", by CPU time" if result["busy"] else ""
    return f"{result['speed']:.2f} × [{low:.2f} to {high:.2f}]{how}"


def _share(before: float, after: float) -> str:
    return f"{after / before:.0%}" if before else ""


def _about(measured: Any) -> str:
    if not measured:
        return ""
    threads = words.some(measured["threads"], "thread")
    return (
        f"Both models were timed in turns, each in a process of its own: {threads}, "
        f"{measured['cpu']}, {measured['date']}. Latencies are medians; the speed is the centre of "
        f"the ratios of single rounds{_sure(measured)}."
    )


def _sure(measured: Any) -> str:
    found = measured.get("confidence")
    return f", with an interval of {found * 100:.0f} % confidence" if found else ""


def waterfall(report: Report) -> dict[str, Any] | None:
    """The measured time of both models, shared out by kind of op as a profile saw it."""
    measured, rows = report.result["measured"], report.times
    before, after = sum(row.fp32 for row in rows), sum(row.best for row in rows)
    if not measured or not before or not after:
        return None
    scale = (measured["fp32"] / before, measured["best"] / after)
    most = max(max(row.fp32 * scale[0], row.best * scale[1]) for row in rows)
    shown = []
    for row in rows:
        both = (row.fp32 * scale[0], row.best * scale[1])
        # In the unit of the longest, so that rows can be compared, too.
        texts = words.durations([*both, most])
        bars = [(text, seconds / most) for text, seconds in zip(texts, both, strict=False)]
        shown.append((row.kind, bars))
    return {
        "rows": shown,
        "text": f"The {words.change(measured['fp32'], measured['best'])} of a batch, shared out "
        "by a profile of single ops.",
    }
