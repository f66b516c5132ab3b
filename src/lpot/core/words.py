"""Numbers as people read them: durations, sizes, accuracies, losses, counts of ops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lpot.core.goal import Goal
from lpot.core.recipe import Recipe
from lpot.core.trial import Score


def digits(value: float) -> str:
    """Three of them, and no exponent.

    >>> digits(0.10444), digits(52.31), digits(1234.5), digits(0.0000012), digits(0)
    ('0.104', '52.3', '1234', '0.0000012', '0')
    """
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return f"{value:.9f}".rstrip("0") if "e" in text else text


def _unit(seconds: float) -> tuple[str, float]:
    if seconds >= 0.9995:
        return "s", 1.0
    return ("ms", 1e3) if seconds >= 0.9995e-3 else ("µs", 1e6)


def duration(seconds: float) -> str:
    """
    >>> duration(0.0042), duration(0.1044), duration(2.264), duration(75), duration(7385)
    ('4.2 ms', '104 ms', '2.26 s', '1 min 15 s', '2 h 3 min')
    """
    whole = round(seconds)
    if whole < 60:
        unit, scale = _unit(seconds)
        return f"{digits(seconds * scale)} {unit}"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def change(before: float, after: float) -> str:
    """Two durations in one unit, so that they can be compared at a glance.

    >>> change(0.104, 0.0523), change(1.2, 0.25)
    ('104 → 52.3 ms', '1.2 → 0.25 s')
    """
    unit, scale = _unit(max(before, after))
    return f"{digits(before * scale)} → {digits(after * scale)} {unit}"


def durations(seconds: Sequence[float]) -> list[str]:
    """For a row of a table: all in the unit of the longest.

    >>> durations([0.104, 0.0523])
    ['104 ms', '52.3 ms']
    """
    unit, scale = _unit(max(seconds, default=0.0))
    return [f"{digits(each * scale)} {unit}" for each in seconds]


def clock(seconds: float) -> str:
    """For a place that is written again and again: of steady width.

    >>> clock(4.2), clock(75), clock(7385)
    ('0:04', '1:15', '2:03:05')
    """
    whole = max(0, math.ceil(seconds - 0.5))
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def size(count: float) -> str:
    """
    >>> size(336436), size(1.25e9), size(12)
    ('336 kB', '1.25 GB', '12 bytes')
    """
    unit, scale = _size_unit(count)
    return f"{digits(count / scale)} {unit}"


def size_change(before: float, after: float) -> str:
    """
    >>> size_change(1_020_000, 270_400)
    '1.02 → 0.27 MB'
    """
    unit, scale = _size_unit(max(before, after))
    return f"{digits(before / scale)} → {digits(after / scale)} {unit}"


def sizes(counts: Sequence[float]) -> list[str]:
    """
    >>> sizes([1_020_000, 270_400])
    ['1.02 MB', '0.27 MB']
    """
    unit, scale = _size_unit(max(counts, default=0.0))
    return [f"{digits(count / scale)} {unit}" for count in counts]


def _size_unit(count: float) -> tuple[str, float]:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * scale:
            return unit, scale
    return "bytes", 1.0


def accuracy(value: float | None) -> str:
    """
    >>> accuracy(0.99247176913), accuracy(None)
    ('0.992472', '–')
    """
    return "–" if value is None else f"{value:.6g}"


def limit(score: Score, higher_is_better: bool) -> str:
    """The sign of what is no score but a bound of one, or an estimate; '' for a score.

    >>> limit(Score(0.11, bounds=(0.11, 0.88)), True), limit(Score(0.9), True)
    ('≤', '')
    """
    if score.estimated:
        return "≈"
    return "" if score.bounds is None else "≤" if higher_is_better else "≥"


def scored(score: Score | None, goal: Goal | None) -> str:
    """A score, or what one that was stopped early can still become at best.

    >>> scored(Score(0.11, bounds=(0.11, 0.88)), Goal(relative=0.01))
    '≤ 0.88'
    """
    if score is None:
        return accuracy(None)
    higher = goal is None or goal.higher_is_better
    return f"{limit(score, higher)} {accuracy(score.at_best(higher))}".strip()


def loss(goal: Goal, score: Score, baseline: float) -> str:
    """What was lost, or what at least was.

    >>> loss(Goal(relative=0.01), Score(0.11, bounds=(0.11, 0.88)), 1.0)
    '≥ 12.00 %'
    """
    sign = limit(score, goal.higher_is_better)
    sign = "≥" if sign in ("≤", "≥") else sign
    return f"{sign} {drop(goal, score.at_best(goal.higher_is_better), baseline)}".strip()


def drop(goal: Goal, value: float, baseline: float) -> str:
    """What was lost, in the goal's own unit; a gain has a minus.

    >>> drop(Goal(relative=0.01), 0.98, 1.0), drop(Goal(absolute=0.5), 76.0, 75.5)
    ('2.00 %', '-0.5')
    """
    if goal.relative is not None and baseline == 0:
        return "–"
    lost = goal.drop(value, baseline)
    # Float noise of an equal score is no loss.
    lost = 0.0 if abs(lost) < 1e-12 * max(1.0, abs(baseline)) else lost
    if goal.relative is None:
        return f"{lost:.3g}"
    percent = lost * 100
    return f"{percent:.1g} %" if 0 < abs(percent) < 0.005 else f"{percent:.2f} %"


def allowed(goal: Goal) -> str:
    """
    >>> allowed(Goal(relative=0.01)), allowed(Goal(absolute=0.5))
    ('1 %', '0.5')
    """
    return f"{goal.absolute:.4g}" if goal.relative is None else f"{goal.relative * 100:.4g} %"


def precisions(counts: Mapping[str, int]) -> str:
    """
    >>> precisions({"fp32": 3, "int8": 11})
    'int8 11, fp32 3'
    """
    order = sorted(counts.items(), key=lambda item: (item[0].startswith(("fp", "bf")), item[0]))
    return ", ".join(f"{word} {count}" for word, count in order) or "none"


def planned(recipe: Recipe) -> str:
    """How many ops a recipe has in which precision; both signs of eight bits count as int8.

    >>> from lpot.core.recipe import FP32, OpConfig, OpKey, TensorConfig
    >>> byte = OpConfig(TensorConfig("uint8"))
    >>> planned(Recipe({OpKey("a", "Add"): byte, OpKey("b", "Mul"): FP32}))
    'int8 1, fp32 1'
    """
    counts: dict[str, int] = {}
    for word, count in recipe.precisions().items():
        word = "int8" if word == "uint8" else word
        counts[word] = counts.get(word, 0) + count
    return precisions(counts)


def some(count: int, noun: str) -> str:
    """
    >>> some(1, "op"), some(2, "op")
    ('1 op', '2 ops')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def one_line(text: str, most: int = 200) -> str:
    """
    >>> one_line("two\\nlines")
    'two lines'
    """
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
