"""How sure a drop is: exact bounds for answers, samples drawn again and again for the rest."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lpot.core.evaluation.tally import Counts as Counts
from lpot.core.evaluation.tally import MeanPieces
from lpot.core.goal import Goal
from lpot.core.progress import tracked
from lpot.core.recipe import Recipe

# -- Exact bounds of a drop, from paired answers that are right or wrong.
#
# Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
# binomial" (1934), on the discordant answers that McNemar's test goes by (1947): those that one
# model gets right and the other wrong. Agreement is evidence too, but never certainty: of n
# samples without any discordant answer, up to 3 / n may still be lost.


RISK = 0.05  # that the truth lies beyond one end
HALVINGS = 60  # of the interval in which a bound is looked for
FARTHEST = 10  # times the samples given, beyond which nobody is told to evaluate more


def upper(count: int, of: int, risk: float = RISK) -> float:
    """The largest share that so many of so many do not contradict.

    >>> round(upper(0, 164), 4)
    0.0181
    """
    if count >= of:
        return 1.0
    low, high = count / of, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(count, of, middle) > risk else (low, middle)
    return high


def lower(count: int, of: int, risk: float = RISK) -> float:
    return 1.0 - upper(of - count, of, risk)


def _at_most(count: int, of: int, share: float) -> float:
    """The probability of at most so many, where each comes with this share."""
    if share <= 0.0:
        return 1.0
    if share >= 1.0:
        return float(count >= of)
    if count > of // 2:  # the shorter sum
        return 1.0 - _at_most(of - count - 1, of, 1.0 - share) if count < of else 1.0
    steps = np.arange(1, count + 1)
    odds = math.log(share) - math.log1p(-share)
    logs = np.concatenate(([0.0], np.cumsum(np.log((of - steps + 1) / steps) + odds)))
    start = of * math.log1p(-share)
    return float(np.exp(np.clip(logs + start, -745.0, 0.0)).sum())


def drop_bounds(lost: int, won: int, samples: int) -> tuple[float, float]:
    """Between which the share of answers lost, less those won, lies; each end may fail in 5 %.

    >>> tuple(round(end, 3) for end in drop_bounds(0, 0, 164))
    (-0.018, 0.018)
    """
    return -_most(won, lost, samples), _most(lost, won, samples)


def _most(lost: int, won: int, samples: int) -> float:
    # Where nothing was won there is nothing to set off, and the whole risk is for what was lost.
    if not won:
        return upper(lost, samples)
    return upper(lost, samples, RISK / 2) - lower(won, samples, RISK / 2)


def samples_to_decide(lost: int, won: int, samples: int, allowed: float) -> int | None:
    """About how many samples, with discordant answers in proportion, would tell; None: too many.

    >>> samples_to_decide(0, 0, 164, allowed=0.01)
    300
    """
    low, high = samples, samples
    while not _decides(lost, won, samples, high, allowed):
        if high >= FARTHEST * samples:
            return None
        low, high = high, min(2 * high, FARTHEST * samples)
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if _decides(lost, won, samples, middle, allowed):
            high = middle
        else:
            low = middle
    return _about(high)


def _about(count: int) -> int:
    """To two figures, upwards: it is an estimate, and told in several places."""
    digits = len(str(count)) - 2
    return count if digits <= 0 else -(-count // 10**digits) * 10**digits


def _decides(lost: int, won: int, samples: int, of: int, allowed: float) -> bool:
    low, high = drop_bounds(round(lost * of / samples), round(won * of / samples), of)
    return high <= allowed or low > allowed


DRAWS = 400
FEW_DIFFER = 30  # answers, up to which exact bounds are taken; they are wide for more
FEWEST = 10  # samples, below which an interval would say nothing
KEPT = 8  # evaluations whose pieces are kept: the best is among the latest


@runtime_checkable
class Pieces(Protocol):
    """What an evaluation found, sample by sample, where the score is no plain mean of it.

    `keys` names the samples; `score` is the score as if each had come so many times, NaN where
    that leaves nothing to score.
    """

    @property
    def keys(self) -> Sequence[Any]: ...

    def score(self, counts: Counts) -> float: ...


@dataclass(frozen=True)
class Interval:
    """Where the drop lies, in the goal's own unit; a gain is negative. Each end may fail in 5 %."""

    low: float
    high: float
    samples: int
    confidence: float = 1.0 - RISK
    draws: int = DRAWS  # 0: the bounds are exact
    needed: int | None = None  # samples that would tell whether the bar holds, if these do not

    def holds(self, allowed: float) -> bool | None:
        """Is no more lost than is allowed? None where these samples can't tell."""
        if self.high <= allowed:
            return True
        return False if self.low > allowed else None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class PieceBox:
    """The pieces of the baseline and of the latest few models that were evaluated in full."""

    def __init__(self) -> None:
        self._kept: dict[str, Pieces] = {}
        self._intervals: dict[str, Interval] = {}
        self._record: Callable[[Recipe, Mapping[str, Any]], None] = lambda recipe, interval: None

    def resume(
        self,
        pieces: Mapping[str, Any],
        intervals: Mapping[str, Any],
        record: Callable[[Recipe, Mapping[str, Any]], None],
    ) -> None:
        """What earlier evaluations found, by recipe, and where intervals are written down."""
        self._kept = {**pieces, **self._kept}
        self._record = record
        for digest, raw in intervals.items():
            with contextlib.suppress(TypeError):  # of another version
                self._intervals[digest] = Interval(**raw)

    def interval(self, recipe: Recipe, goal: Goal, seed: int) -> Interval | None:
        """How sure the drop is: as it was found once, or from the pieces. None without these."""
        known = self._intervals.get(recipe.digest)
        before, after = self.get(None), self.get(recipe)
        if known is not None or before is None or after is None:
            return known
        found = paired_interval(before, after, goal, seed)
        if found is not None:
            self._intervals[recipe.digest] = found
            self._record(recipe, found.to_json())
        return found

    def put(self, recipe: Recipe | None, pieces: Any) -> None:
        """Whatever a metric calls its pieces: what can't be scored again is let go."""
        if not isinstance(pieces, Pieces):
            return
        self._kept[_key(recipe)] = pieces
        trials = [key for key in self._kept if key]
        for key in trials[:-KEPT]:
            del self._kept[key]

    def get(self, recipe: Recipe | None) -> Pieces | None:
        return self._kept.get(_key(recipe))


def _key(recipe: Recipe | None) -> str:
    return "" if recipe is None else recipe.digest


def paired_interval(
    before: Pieces, after: Pieces, goal: Goal, seed: int = 0, draws: int = DRAWS
) -> Interval | None:
    """Where the drop lies; None for too few samples, or other ones.

    Answers that are right or wrong have exact bounds as long as few of them differ. All else is
    resampled, with a floor: what no sample showed may still happen to as many as 3 in n.
    """
    keys = list(before.keys)
    if len(keys) < FEWEST or set(keys) != set(after.keys):
        return None
    places = {key: at for at, key in enumerate(keys)}
    order = np.array([places[key] for key in after.keys])
    answers = _answers(before, after, order, goal)
    if answers is not None and answers.lost + answers.won <= FEW_DIFFER:
        return answers.interval(goal)
    return _bootstrap(before, after, order, goal, seed, draws)


@dataclass(frozen=True)
class _Answers:
    """Right or wrong: how many were lost and won, what one is worth, and the score they had."""

    lost: int
    won: int
    samples: int
    worth: float
    baseline: float

    def interval(self, goal: Goal) -> Interval:
        unit = self.worth if goal.relative is None else self.worth / abs(self.baseline)
        low, high = (unit * end for end in drop_bounds(self.lost, self.won, self.samples))
        needed = None
        if low <= goal.allows < high:
            needed = samples_to_decide(self.lost, self.won, self.samples, goal.allows / unit)
        return Interval(low, high, self.samples, draws=0, needed=needed)


def _scores(before: Pieces, after: Pieces, order: Any) -> tuple[Counts, Counts] | None:
    """Of both, sample by sample; None where a score is no mean of single ones."""
    if not (isinstance(before, MeanPieces) and isinstance(after, MeanPieces)):
        return None
    ordered = np.empty_like(after.scores)
    ordered[order] = after.scores
    return before.scores, ordered


def _answers(before: Pieces, after: Pieces, order: Any, goal: Goal) -> _Answers | None:
    """None where scores are no answers: more than two values, or no mean of single ones."""
    found = _scores(before, after, order)
    if found is None:
        return None
    one, ordered = found
    values = np.unique(np.concatenate([one, ordered]))
    baseline = float(np.mean(one))
    if len(values) > 2 or (goal.relative is not None and baseline == 0):
        return None
    worth = float(values[-1] - values[0]) if len(values) == 2 else float(abs(values[0])) or 1.0
    better = ordered > one if goal.higher_is_better else ordered < one
    won = int(better.sum())
    lost = int((ordered != one).sum()) - won
    return _Answers(lost, won, len(one), worth, baseline)


def _bootstrap(
    before: Pieces, after: Pieces, order: Any, goal: Goal, seed: int, draws: int
) -> Interval | None:
    samples = len(order)
    random = np.random.default_rng(seed)
    share = np.full(samples, 1.0 / samples)
    drops: list[float] = []
    for _ in tracked(range(draws)):
        counts = random.multinomial(samples, share).astype(np.float64)
        drop = _drop(before, after, counts, order, goal)
        drops += [] if drop is None else [drop]
    seen = _drop(before, after, np.ones(samples), order, goal)
    if len(drops) < draws / 2 or seen is None:
        return None
    outside = 100 * RISK
    low, high = (float(end) for end in np.percentile(drops, [outside, 100 - outside]))
    floor = upper(0, samples) * _worth(before, after, order, goal)
    low, high = min(low, seen - floor), max(high, seen + floor)
    needed = None
    if low <= goal.allows < high:
        needed = _needed(seen, high - seen if seen <= goal.allows else seen - low, samples, goal)
    return Interval(low, high, samples, draws=len(drops), needed=needed)


def _drop(before: Pieces, after: Pieces, counts: Counts, order: Any, goal: Goal) -> float | None:
    one, other = before.score(counts), after.score(counts[order])
    usable = np.isfinite(one) and np.isfinite(other) and (one != 0 or goal.relative is None)
    return goal.drop(other, one) if usable else None


def _worth(before: Pieces, after: Pieces, order: Any, goal: Goal) -> float:
    """What a sample that none was like may change, in the goal's unit."""
    whole = np.ones(len(order))
    baseline = before.score(whole)
    found = _scores(before, after, order)
    if found is None:
        size = abs(baseline)
    else:
        one, ordered = found
        differing = np.abs(ordered - one)[ordered != one]
        size = float(differing.mean()) if differing.size else float(np.ptp(one)) or abs(baseline)
    return size if goal.relative is None else size / abs(baseline)


def _needed(seen: float, reach: float, samples: int, goal: Goal) -> int | None:
    """Samples with which the end towards the bar would come up to it: it shrinks as their root."""
    room = abs(goal.allows - seen)
    needed = samples * (reach / room) ** 2 if room > 0 else math.inf
    return _about(math.ceil(needed)) if needed <= FARTHEST * samples else None
