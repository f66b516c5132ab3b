"""What to do next, in a sentence or two, from what a report says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpot.core.interrupt import was_interrupted
from lpot.core.results.report import Report

NEARLY = 0.05  # of the model's ops: so few in FP32 cost no speed worth the search


def first_line(report: Report) -> tuple[str, str]:
    """The verdict and its style: met, missed or open."""
    result = report.result
    if report.state != "finished":
        return _unfinished(report)
    style = {True: "met", None: "open", False: "missed"}[result["met"]]
    if result["verdict"]:
        said = result["verdict"]["brief"]
        good = style != "met" or result["verdict"]["style"] == "good"
        return f"{said[:1].upper()}{said[1:]}.", style if good else "open"
    # A report of an older version.
    if result["met"] is True:
        return "Bar met.", "met"
    if result["met"] is None:
        return "Not evaluated: no eval function and no metric were given.", "open"
    if result["accuracy"] is None:
        return "No low-precision model was found: the FP32 model is returned.", "missed"
    return "The bar was not met: this is the best model found.", "missed"


def _unfinished(report: Report) -> tuple[str, str]:
    begun = "running" if report.state == "running" else "unfinished"
    found = sum(row.met for row in report.trials)
    if report.result["baseline"] is None:
        return f"The tuning is {begun}: FP32 has not been scored yet.", "open"
    if not report.trials:
        return f"The tuning is {begun}: no trial has finished yet.", "open"
    if found:
        held = f"{found} of {len(report.trials)} trials meet the bar"
        return f"The tuning is {begun}: {held} so far.", "met"
    return f"The tuning is {begun}: no trial meets the bar yet.", "open"


def next_steps(report: Report) -> list[str]:
    """The most useful first; empty while it runs."""
    result = report.result
    if report.state == "running":
        return []
    if report.state == "stopped":
        return ["Run the same command again to resume from the finished trials."]
    steps = _about_accuracy(report) + _about_speed(report)
    if not steps and result["met"]:
        steps.append("Use the tuned model; measure it with your own batch size: lpot benchmark.")
    return steps


def _about_accuracy(report: Report) -> list[str]:
    result = report.result
    if result["met"] is None:
        return ["Provide an eval function or a metric and tune again: its accuracy is unknown."]
    if result["met"]:
        return _about_proof(result)
    if was_interrupted(result["stopped"]):
        return ["Run the same command again: it resumes from the trials that are done."]
    worst = sorted(
        (op for op in report.ops if op.sensitivity), key=lambda op: -(op.sensitivity or 0.0)
    )[:3]
    if not worst:
        low = [op for op in report.ops if op.sqnr is not None and op.precision != "fp32"]
        worst = sorted(low, key=lambda op: op.sqnr or 0.0)[:3]
    steps = []
    if worst:
        names = ", ".join(op.name for op in worst)
        steps.append(f"Look at the most sensitive ops ({names}): lpot inspect --tensors.")
    more = "" if result["stopped"].startswith("performance_only") else ", allow more trials or time"
    steps.append(f"Use more calibration data{more}, or lower the bar.")
    return steps


def _about_proof(result: Mapping[str, Any]) -> list[str]:
    interval = result.get("interval")
    if result.get("proven") is not False or not interval or not interval.get("needed"):
        return []
    return [f"Evaluate about {interval['needed']} samples to prove that the bar is met."]


def _about_speed(report: Report) -> list[str]:
    result = report.result
    if result.get("declined"):
        return ["Use FP32 on this machine, or measure with the batch size you will use."]
    if result["speed"] is None and result["met"] is not False:
        return ["Speed was not measured: compare both models with lpot benchmark."]
    if result["faster"] is False:
        return ["Stay with FP32 on this machine, or measure with the batch size you will use."]
    if result["faster"] is None and result["speed"] is not None:
        return ["Measure again on an idle machine: no significant difference was found."]
    able = sum(result["precisions"].values())
    kept = len(result["fp32_ops"])
    if result["met"] and able and kept > NEARLY * able:
        stay = "op stays" if kept == 1 else "ops stay"
        return [f"{kept} {stay} in FP32: a longer search (timeout) may need fewer."]
    return []
