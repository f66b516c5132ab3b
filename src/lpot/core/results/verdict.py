"""The verdict on a tuning: what was reached, the figures behind it, where it all lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lpot.core import words
from lpot.core.measure import fits

if TYPE_CHECKING:
    from lpot.core.results.result import Result

Style = Literal["good", "fair"]

SHOWN_OPS = 10
COLOURS = {"good": "#17804c", "fair": "#a8590c"}
NOT_TOLD = ("notes", "", "history", "result", "evaluations")  # in a few lines: the report has them


@dataclass(frozen=True)
class Verdict:
    """What a run has shown, judged once and stored with it: every surface reads this.

    >>> Verdict("bar met", "accuracy 0.9 against 0.9 in FP32", "good", True).text
    'bar met: accuracy 0.9 against 0.9 in FP32'
    """

    brief: str
    figures: str
    style: Style
    met: bool | None
    proven: bool | None = None
    samples: int | None = None  # that the scores are means of
    interval: Mapping[str, Any] | None = None  # of the drop
    runtime: str = ""  # in which, on which CPU, when
    cpu: str = ""
    when: str = ""
    taken: float | None = None  # of the machine, by others, while speed was measured

    @property
    def text(self) -> str:
        return ": ".join(part for part in (self.brief, self.figures) if part)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "text": self.text}


def judge(result: Result) -> Verdict:
    brief, figures, style = _judged(result)
    if result.declined is not None:
        ratio = result.declined.timed.ratio
        brief = f"FP32 is returned, low precision is {ratio:.2f} times as fast as that"
        style = "fair"
    elif result.slower is not None and result.met is not False:
        brief = f"stay with FP32, this is {result.slower:.2f} times as fast: {brief}"
        style = "fair"
    if result.busy:
        figures = f"{figures}; speed by CPU time alone, for the machine was busy"
    if result.held_out is not None and not result.held_out.met:
        brief, style = f"{brief}; not on held-out data ({_held_out(result)})", "fair"
    if result.interrupted:
        brief = f"interrupted: {brief}"
    baseline, interval = result.baseline, result.interval
    counted = None if baseline is None else baseline.samples
    return Verdict(
        brief,
        figures,
        style,
        result.met,
        result.proven,
        counted if interval is None else interval.samples,
        None if interval is None else interval.to_json(),
        result.runtime,
        result.cpu,
        result.when,
        None if result.timed is None else result.timed.taken,
    )


def _judged(result: Result) -> tuple[str, str, Style]:
    """Was the bar met, and at what loss."""
    best = result.best if result.declined is None else result.declined.trial
    given_back = result.declined is None and not result.recipe.low_ops
    if best is None and given_back and result.met is not False:
        return "nothing to quantize", "the FP32 model is returned", "fair"
    if result.met is None:
        given = "no evaluation function and no metric were given"
        return "not evaluated", given if result.baseline is None else result.stopped, "fair"
    if best is None or best.score is None or result.baseline is None:
        return "no low-precision model was found", "the FP32 model is returned", "fair"
    score, baseline = best.score, result.baseline.accuracy
    lost = words.loss(result.goal, score, baseline)
    change = f"a gain of {lost[1:]}" if lost.startswith("-") else f"a drop of {lost}"
    early = ", stopped early," if score.raced_out else ""
    figures = (
        f"accuracy {words.scored(score, result.goal)}{early} "
        f"against {words.accuracy(baseline)} in FP32, "
        f"{change}, where {words.allowed(result.goal)} may be lost"
    )
    if result.met and result.goal.is_implausible(score.accuracy, baseline):
        return "bar met by an implausible gain, see the notes", figures, "fair"
    if result.met and result.proven is False:
        return f"bar met on these {_samples(result)} samples; not proven", figures, "good"
    if result.met:
        return "bar met", figures, "good"
    if result.goal.proven and result.goal.is_met(score.accuracy, baseline):
        return "bar met, but not proven as was asked; best effort", figures, "fair"
    return "bar missed, best effort", figures, "fair"


def _held_out(result: Result) -> str:
    found = result.held_out
    assert found is not None
    return f"{words.accuracy(found.accuracy)} for {words.accuracy(found.baseline)} in FP32"


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
    first = result.verdict.text
    told = [(name, text) for name, text in rows(result) if name not in NOT_TOLD]
    width = max(len(name) for name, _ in told)
    return "\n".join([first, *(f"  {name:<{width}}  {text}" for name, text in told)])


def as_html(result: Result) -> str:
    """The same for a notebook."""
    first, style = result.verdict.text, result.verdict.style
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
    if result.declined is not None:
        of = result.declined.timed
        return f"FP32's; low precision has {of.ratio:.2f} [{of.low:.2f} to {of.high:.2f}] times it"
    if result.speed is None:
        return "not measured"
    found = result.timed
    span = "" if found is None else f" [{found.low:.2f} to {found.high:.2f}]"
    ratio = f"{result.speed:.2f}{span}"
    words_of = {
        True: f"{ratio} times as fast as FP32",
        False: f"slower: {ratio} times the speed of FP32",
        None: f"no significant difference: {ratio} times the speed of FP32",
    }
    how = " by CPU time, on a busy machine" if result.busy else ""
    return words_of[result.faster] + how + _latencies(result)


def _latencies(result: Result) -> str:
    if result.benchmark is None:
        return ""
    timings = [model.timing for model in result.benchmark.models[:2]]
    medians = [timing.median for timing in timings if timing is not None]
    if len(medians) < 2 or result.timed is None or result.busy:
        return ""  # by the clock they say something else than CPU time
    if not fits(medians[0], medians[1], (result.timed.low, result.timed.high)):
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
