"""Tables of the commands: benchmarks, checks, ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lpot.core import words
from lpot.core.goal import Goal
from lpot.core.measure import fits
from lpot.core.results.benchmark import BenchmarkResult
from lpot.core.results.result import Result
from lpot.core.trial import Trial

STYLES: Mapping[str, str] = {
    "ok": "green",
    "note": "cyan",
    "warn": "yellow",
    "missing": "yellow",
    "fail": "bold red",
}
SIDE_BY_SIDE = 4  # models; more of them are listed one a line


def benchmark_table(result: BenchmarkResult) -> RenderableType:
    """Models side by side, the first one measured being the baseline."""
    found = result.rows()
    upright = len(found) <= SIDE_BY_SIDE
    if upright:
        names = [name for name in found[0] if name != "model" and any(row[name] for row in found)]
        rows = [(name, *(row[name] for row in found)) for name in names]
        table = listing(("", *(row["model"] for row in found)), rows)
    else:
        table = listing(tuple(found[0]), [tuple(row.values()) for row in found])
    inputs = ", ".join(map(str, result.inputs))
    threads = result.settings.threads or result.settings.share(result.cpu)
    about = Text(f"inputs {inputs}; {words.some(threads, 'thread')}; {result.cpu.name}", "dim")
    return Group(table, about, *(Text(f"note: {note}", "dim") for note in result.notes))


def listing(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Plain columns under their names."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def checks(rows: Iterable[tuple[str, str, str]]) -> Table:
    """(name, state, what was found) a row; the state is a word of STYLES."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, state, text in rows:
        table.add_row(name, Text(state, STYLES.get(state, "")), Text(text))
    return table


def contrast(result: Result) -> Table:
    """FP32, everything in INT8 as the first trial had it, and the best model, side by side."""
    plain = result.trials[0] if result.trials else None
    before, after = _latencies(result)
    ops = sum(result.precisions.values())
    low = "" if plain is None else words.planned(plain.recipe)
    rows = (
        (
            "accuracy",
            _accuracy(result),
            _judged(plain, result.goal),
            _judged(result.best, result.goal),
        ),
        ("latency", before, "", after),
        ("speed", "1", "", _ratio(result)),
        ("size", *_sizes(result, plain)),
        ("ops", f"fp32 {ops}", low, words.precisions(result.precisions)),
    )
    return listing(("", "FP32", "plain INT8", "tuned"), rows)


def _accuracy(result: Result) -> str:
    return words.accuracy(None if result.baseline is None else result.baseline.accuracy)


def _judged(trial: Trial | None, goal: Goal) -> str:
    if trial is None or trial.accuracy is None:
        return "failed" if trial is not None else ""
    stopped = trial.score is not None and trial.score.raced_out
    early = ", stopped early" if stopped else ""
    return f"{words.scored(trial.score, goal)} ({'bar met' if trial.met else 'bar missed'}{early})"


def _latencies(result: Result) -> tuple[str, str]:
    if result.busy:
        return "not measured", "in quiet"
    timings = () if result.benchmark is None else [m.timing for m in result.benchmark.models[:2]]
    seconds = [timing.median for timing in timings if timing is not None]
    medians = words.durations(seconds)
    if len(seconds) < 2:
        return "not measured", "not measured"
    span = None if result.timed is None else (result.timed.low, result.timed.high)
    if span is not None and not fits(seconds[0], seconds[1], span):
        return "not measured", "in quiet"
    return medians[0], medians[1]


def _ratio(result: Result) -> str:
    found = None if result.benchmark is None else result.benchmark.models[1].comparison
    if found is None:
        return ""
    doubt = "" if found.significant else ", no significant difference"
    how = " by CPU time" if found.busy else ""
    return f"{found.ratio:.2f} times [{found.low:.2f} to {found.high:.2f}]{how}{doubt}"


def _sizes(result: Result, plain: Trial | None) -> tuple[str, str, str]:
    known = plain is not None and plain.score is not None and plain.score.size
    before, after = result.sizes or (0, 0)
    return words.size(before), words.size(known) if known else "", words.size(after)
