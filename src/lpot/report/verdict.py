"""The verdict on a tuning: what was reached first, then the figures, then where everything lies."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lpot.core.result import Result
from lpot.report import words

SHOWN_OPS = 10


def verdict(result: Result) -> RenderableType:
    """A Result for the terminal. `console.print(verdict(result))`."""
    return Group(headline(result), facts(result))


def facts(result: Result, leave_out: Collection[str] = ()) -> Table:
    """The figures and places, one a line, but for those left out by name."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows(result):
        if name not in leave_out:
            table.add_row(name, Text(text))
    return table


def headline(result: Result) -> Text:
    """One line: was the bar met, and at what loss."""
    text, style = _judgement(result)
    return Text(f"interrupted: {text}" if result.interrupted else text, f"bold {style}")


def _judgement(result: Result) -> tuple[str, str]:
    if result.met is None:
        return "not evaluated: no eval function and no metric were given", "yellow"
    if result.best is None or result.accuracy is None or result.baseline is None:
        return "no low-precision model was found: the FP32 model is returned", "yellow"
    lost = words.drop(result.goal, result.accuracy, result.baseline.accuracy)
    change = f"a gain of {lost[1:]}" if lost.startswith("-") else f"a drop of {lost}"
    figures = (
        f"accuracy {words.accuracy(result.accuracy)} "
        f"against {words.accuracy(result.baseline.accuracy)} in FP32, "
        f"{change}, where {words.allowed(result.goal)} may be lost"
    )
    if result.met and result.goal.is_implausible(result.accuracy, result.baseline.accuracy):
        return f"bar met by an implausible gain, see the notes: {figures}", "yellow"
    if result.met and result.proven is False:
        return f"bar met on these {_samples(result)} samples; not proven: {figures}", "green"
    if result.met:
        return f"bar met: {figures}", "green"
    return f"bar missed, best effort: {figures}", "yellow"


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
    yield "kept in FP32", _float_ops(result.float_ops)
    for index, note in enumerate(result.notes):
        yield ("" if index else "notes"), note
    yield from _places(result)


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
    return f" ({words.duration(medians[0])} → {words.duration(medians[1])} {batch})"


def _sizes(before: int, after: int) -> str:
    text = f"{words.size(before)} → {words.size(after)}"
    return f"{text} ({before / after:.1f} times smaller)" if 0 < after < before else text


def _float_ops(names: tuple[str, ...]) -> str:
    if not names:
        return "none that could run in low precision"
    rest = len(names) - SHOWN_OPS
    return ", ".join(names[:SHOWN_OPS]) + (f" and {rest} more" if rest > 0 else "")


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
