"""Is it still the evaluation whose scores are known? FP32 is evaluated again, and compared.

With scores of single samples the first ones are enough, where all that can be seen of the
evaluation is as it was; the whole is evaluated otherwise. An evaluation that comes out differently
each time is not one that changed: its own spread is found out, and allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lpot.core.evaluation.race import Race
from lpot.core.evaluation.tally import Bounds, MeanPieces, SampleScores, Tally
from lpot.core.trial import Score

PART = 0.2  # of the samples are enough,
LEAST = 1000  # if they are as many as this
FLIPS = 0.001  # of the samples may come out otherwise: those that were decided by a last bit
CLOSE = 1e-6  # of a score: other threads add up in another order
SPREAD = 2.0  # times the range of three scores: how far a fourth may lie from their mean

Evaluate = Callable[[Race | None], tuple[Score, MeanPieces | None]]


@dataclass(frozen=True)
class Known:
    """A score of an earlier run, with those of its samples where they were kept."""

    score: Score
    pieces: MeanPieces | None = None

    @property
    def tells(self) -> bool:
        """Could another evaluation hardly come to the same? One that gives each sample the same
        score, or one number for all, says little."""
        return self.pieces is not None and bool(np.ptp(self.pieces.scores) > 0)


@dataclass(frozen=True, eq=False)
class Recheck(Race):
    """Ends an evaluation after the first `enough` samples, whatever they say."""

    enough: int = 0
    seen: list[MeanPieces] | None = None  # what was compared, for whoever started it

    def lost(
        self, tally: Tally | None, seconds: float, scores: SampleScores | None = None
    ) -> Score | None:
        if scores is None or len(scores) < self.enough:
            return None
        found = scores.so_far()
        if found is None:
            return None
        if self.seen is not None:
            self.seen.append(found)
        mean = float(found.scores.mean())
        return Score(mean, seconds, len(scores), bounds=(mean, mean))

    def first_look(self, bounds: Bounds) -> int | None:
        return self.enough


@dataclass(frozen=True)
class Answer:
    """Whether it is the same evaluation, in words that follow `FP32`."""

    same: bool
    words: str


def part_of(known: Known) -> int | None:
    """How many samples are enough; None if all are to be evaluated."""
    if known.pieces is None or not known.tells:
        return None
    count = max(LEAST, math.ceil(PART * len(known.pieces.scores)))
    return count if count < len(known.pieces.scores) else None


def compare(known: Known, evaluate: Evaluate, race: Recheck | None) -> Answer:
    """Evaluate again, twice more where that gives something else."""
    first = _seen(evaluate, race)
    samples = _samples(first, known)
    then = _over(known, first)
    if _agree(known, first):
        return Answer(True, f"scores as before{samples}")
    second = _seen(evaluate, race)
    scores = [first.score.accuracy, second.score.accuracy]
    if _agree(first, second):
        return Answer(False, f"scores {scores[0]:.6g}{samples}, where it scored {then:.6g}")
    scores.append(_seen(evaluate, race).score.accuracy)
    told = ", ".join(f"{score:.6g}" for score in scores)
    room = SPREAD * (max(scores) - min(scores))
    if abs(then - sum(scores) / len(scores)) <= room and _same_count(known, first):
        return Answer(
            True, f"scores {told} when it is repeated, so that {then:.6g} is within its own spread"
        )
    return Answer(
        False, f"scores {told}{samples}, where it scored {then:.6g}: more than its spread"
    )


def _seen(evaluate: Evaluate, race: Recheck | None) -> Known:
    if race is not None and race.seen is not None:
        race.seen.clear()
    score, pieces = evaluate(race)
    if score.raced_out and race is not None and race.seen:
        pieces = race.seen[-1]
    return Known(score, pieces)


def _agree(known: Known, now: Known) -> bool:
    """Sample by sample where both tell that, or else by the score."""
    if known.pieces is None or now.pieces is None:
        close = math.isclose(
            known.score.accuracy, now.score.accuracy, rel_tol=CLOSE, abs_tol=CLOSE * CLOSE
        )
        return close and _same_count(known, now)
    if not now.score.raced_out and len(known.pieces.keys) != len(now.pieces.keys):
        return False
    before = dict(zip(known.pieces.keys, known.pieces.scores.tolist(), strict=True))
    if not all(key in before for key in now.pieces.keys):
        return False
    then = np.array([before[key] for key in now.pieces.keys])
    differing = ~np.isclose(then, now.pieces.scores, rtol=1e-4, atol=1e-6)
    return float(differing.mean()) <= FLIPS


def _same_count(known: Known, now: Known) -> bool:
    before, after = known.score.samples, now.score.samples
    return now.score.raced_out or before is None or after is None or before == after


def _over(known: Known, now: Known) -> float:
    """What was known, over the samples that were looked at now."""
    if known.pieces is None or now.pieces is None or not now.score.raced_out:
        return known.score.accuracy
    before = dict(zip(known.pieces.keys, known.pieces.scores.tolist(), strict=True))
    found = [before[key] for key in now.pieces.keys if key in before]
    return float(np.mean(found)) if found else known.score.accuracy


def _samples(now: Known, known: Known) -> str:
    if not now.score.raced_out or known.pieces is None:
        return ""
    return f" in {now.score.samples} of {len(known.pieces.scores)} samples"
