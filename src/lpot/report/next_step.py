"""What to do next, in a sentence or two, from what a report says."""

from __future__ import annotations

from lpot.core.report import Report

NEARLY = 0.05  # of the model's ops: so few in FP32 cost no speed worth the search


def first_line(report: Report) -> tuple[str, str]:
    """The verdict and its style: met, missed or open."""
    result = report.result
    if report.state != "finished":
        return _unfinished(report)
    if result["met"] is True:
        return "The bar is met.", "met"
    if result["met"] is None:
        return "Not evaluated: no eval function and no metric were given.", "open"
    if result["accuracy"] is None:
        return "No low-precision model was found: the FP32 model was handed back.", "missed"
    return "The bar was not reached: this is the best found.", "missed"


def _unfinished(report: Report) -> tuple[str, str]:
    begun = "under way" if report.state == "running" else "not finished"
    found = sum(row.met for row in report.trials)
    if report.result["baseline"] is None:
        return f"The tuning is {begun}: FP32 is not scored yet.", "open"
    if not report.trials:
        return f"The tuning is {begun}: no trial is done yet.", "open"
    if found:
        held = f"{found} of {len(report.trials)} trials hold the bar"
        return f"The tuning is {begun}: {held} so far.", "met"
    return f"The tuning is {begun}: no trial holds the bar yet.", "open"


def next_steps(report: Report) -> list[str]:
    """The most useful first; empty while it runs."""
    result = report.result
    if report.state == "running":
        return []
    if report.state == "stopped":
        return ["Run the same command again: it goes on from the trials that are done."]
    steps = _about_accuracy(report) + _about_speed(report)
    if not steps and result["met"]:
        steps.append("Use the tuned model; measure it with your own batch size: lpot benchmark.")
    return steps


def _about_accuracy(report: Report) -> list[str]:
    result = report.result
    if result["met"] is None:
        return ["Give an eval function or a metric and tune again: nobody knows its accuracy yet."]
    if result["met"]:
        return []
    worst = sorted((op for op in report.ops if op.harm), key=lambda op: -(op.harm or 0.0))[:3]
    if not worst:
        low = [op for op in report.ops if op.sqnr is not None and op.precision != "fp32"]
        worst = sorted(low, key=lambda op: op.sqnr or 0.0)[:3]
    steps = []
    if worst:
        names = ", ".join(op.name for op in worst)
        steps.append(f"Look at the ops that hurt most ({names}): lpot inspect --tensors.")
    steps.append("Give more calibration data, more trials or time, or a wider bar.")
    return steps


def _about_speed(report: Report) -> list[str]:
    result = report.result
    if result["speed"] is None and result["met"] is not False:
        return ["Speed was not measured: compare both models with lpot benchmark."]
    if result["faster"] is False:
        return ["Stay with FP32 on this machine, or measure the batch size you will use."]
    if result["faster"] is None and result["speed"] is not None:
        return ["Measure again on a quiet machine: no significant difference was seen."]
    able = sum(result["precisions"].values())
    kept = len(result["fp32_ops"])
    if result["met"] and able and kept > NEARLY * able:
        return [f"{kept} of {able} ops stay in FP32: a longer search (timeout) may free some."]
    return []
