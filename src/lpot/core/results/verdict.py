"""The verdict on a tuning in words: what was reached, the figures behind it, where it all lies."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lpot.core import words

if TYPE_CHECKING:
    from lpot.core.results.result import Result

Style = Literal["good", "fair"]

SHOWN_OPS = 10
COLOURS = {"good": "#17804c", "fair": "#a8590c"}
NOT_TOLD = ("notes", "", "history", "result", "evaluations")  # in a few lines: the report has them


def judgement(result: Result) -> tuple[str, Style]:
    """One line: was the bar met, and at what loss."""
    text, style = _judged(result)
    if result.slower is not None and result.met is not False:
        text = f"stay with FP32, this is {result.slower:.2f} times as fast: {text}"
        style = "fair"
    return f"interrupted: {text}" if result.interrupted else text, style


def _judged(result: Result) -> tuple[str, Style]:
    if result.best is None and not result.recipe.low_ops and result.met is not False:
        return "nothing to quantize: the FP32 model is returned", "fair"
    if result.met is None:
        given = "no evaluation function and no metric were given"
        return f"not evaluated: {given if result.baseline is None else result.stopped}", "fair"
    if result.best is None or result.accuracy is None or result.baseline is None:
        return "no low-precision model was found: the FP32 model is returned", "fair"
    lost = words.drop(result.goal, result.accuracy, result.baseline.accuracy)
    change = f"a gain of {lost[1:]}" if lost.startswith("-") else f"a drop of {lost}"
    figures = (
        f"accuracy {words.accuracy(result.accuracy)} "
        f"against {words.accuracy(result.baseline.accuracy)} in FP32, "
        f"{change}, where {words.allowed(result.goal)} may be lost"
    )
    if result.met and result.goal.is_implausible(result.accuracy, result.baseline.accuracy):
        return f"bar met by an implausible gain, see the notes: {figures}", "fair"
    if result.met and result.proven is False:
        return f"bar met on these {_samples(result)} samples; not proven: {figures}", "good"
    if result.met:
        return f"bar met: {figures}", "good"
    return f"bar missed, best effort: {figures}", "fair"


def _samples(result: Result) -> int:
    return 0 if result.interval is None else result.interval.samples


def rows(result: Result) -> Iterator[tuple[str, str]]:
    """The figures by name, in the order they are read."""
    yield "speed", speed(result)
    if result.sizes is not None:
        yield "size", _sizes(*result.sizes)
    if result.baseline is not None:
        recalled = sum(trial.recalled for trial in result.trials)
        known = f", {recalled} of them from history" if recalled else ""
        yield (
            "evaluations",
            f"{result.evaluations} ({words.some(len(result.trials), 'trial')}{known} and FP32); "
            f"stopped: {result.stopped}",
        )
    yield "ops", words.precisions(result.precisions)
    yield "kept in FP32", _float_ops(result)
    if result.left:
        yield "never INT8", result.left
    for index, note in enumerate(result.notes):
        yield ("" if index else "notes"), note
    yield from _places(result)


def few_lines(result: Result) -> str:
    """For `print(result)`: as much as fits into a glance."""
    first, _ = judgement(result)
    told = [(name, text) for name, text in rows(result) if name not in NOT_TOLD]
    width = max(len(name) for name, _ in told)
    return "\n".join([first, *(f"  {name:<{width}}  {text}" for name, text in told)])


def as_html(result: Result) -> str:
    """The same for a notebook."""
    first, style = judgement(result)
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows(result)
        if name not in NOT_TOLD
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    more = f"<details><summary>notes</summary><ul>{notes}</ul></details>" if notes else ""
    line = f"border-left:4px solid {COLOURS[style]};padding-left:12px"
    return f'<div style="{line}"><b>{escape(first)}</b><table>{cells}</table>{more}</div>'


def speed(result: Result) -> str:
    """How much faster, with its interval and the times behind it."""
    if result.speed is None:
        return "not measured"
    found = None if result.benchmark is None else result.benchmark.models[1].comparison
    span = "" if found is None else f" [{found.low:.2f} to {found.high:.2f}]"
    ratio = f"{result.speed:.2f}{span}"
    words_of = {
        True: f"{ratio} times as fast as FP32",
        False: f"slower: {ratio} times the speed of FP32",
        None: f"no significant difference: {ratio} times the speed of FP32",
    }
    return words_of[result.faster] + _latencies(result)


def _latencies(result: Result) -> str:
    if result.benchmark is None:
        return ""
    timings = [model.timing for model in result.benchmark.models[:2]]
    medians = [timing.median for timing in timings if timing is not None]
    if len(medians) < 2:
        return ""
    count = result.benchmark.batch_size
    batch = f"a batch of {count}" if count > 1 else "a batch"
    return f" ({words.change(medians[0], medians[1])} {batch})"


def _sizes(before: int, after: int) -> str:
    text = words.size_change(before, after)
    return f"{text} ({before / after:.1f} times smaller)" if 0 < after < before else text


def _float_ops(result: Result) -> str:
    """Those that could pay for themselves; of the others only how many they are."""
    names = result.float_ops
    others = result.precisions.get("fp32", 0) - len(names)
    rest = len(names) - SHOWN_OPS
    told = ", ".join(names[:SHOWN_OPS]) + (f" and {rest} more" if rest > 0 else "")
    if others <= 0:
        return told or "none that could run in low precision"
    only = f"{words.some(others, 'op')} that would gain only between low-precision neighbours"
    return f"{told}, and {only}" if told else only


def _places(result: Result) -> Iterator[tuple[str, str]]:
    yield "model", "not saved, see the notes" if result.path is None else str(result.path)
    folder = result.workspace
    if folder is None:
        return
    places = {
        "history": result.history,
        "result": folder / "result.json",
        "report": folder / "report.html",
    }
    for name, path in places.items():
        if path is not None and Path(path).exists():
            yield name, str(path)
