"""Racing: an evaluation that can no longer reach the bar stops at once, exactly, at no risk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lpot.core.evaluation.tally import Bounds, SampleScores, Tally
from lpot.core.goal import Goal
from lpot.core.trial import Score, Trial


@dataclass(frozen=True)
class Race:
    """The bar of a running search, for scores that are means over a known number of samples."""

    goal: Goal
    baseline: Score

    def lost(
        self, tally: Tally | None, seconds: float, scores: SampleScores | None = None
    ) -> Score | None:
        """A Score with bounds once the bar is out of reach, whatever is still to come.

        `scores` are those of single samples so far, for races that compare these.
        """
        everything = self.baseline.samples
        if tally is None or not everything or tally.seen >= everything:
            return None
        low, high = tally.range(everything)
        best, worst = (high, low) if self.goal.higher_is_better else (low, high)
        if math.isinf(best) or self.goal.is_met(best, self.baseline.accuracy):
            return None
        bound = worst if math.isfinite(worst) else best
        return Score(bound, seconds, tally.seen, bounds=(low, high))

    def earliest(self, bounds: Bounds) -> int | None:
        """The number of samples, all at their worst, that lose the bar; None if that can't be told.

        >>> Race(Goal(absolute=0.1), Score(0.9, samples=100)).earliest((0.0, 1.0))
        21
        """
        everything = self.baseline.samples
        higher = self.goal.higher_is_better
        best, worst = (bounds[1], bounds[0]) if higher else bounds
        if not everything or not math.isfinite(best):
            return None
        if not math.isfinite(worst):
            return 1
        allowed = abs(best - self.goal.bar(self.baseline.accuracy)) / abs(best - worst)
        return min(everything, math.floor(allowed * everything + 1e-9) + 1)

    def first_look(self, bounds: Bounds) -> int | None:
        """The number of samples of a first look that may be enough; None if it is not worth it."""
        everything, earliest = self.baseline.samples, self.earliest(bounds)
        if not everything or earliest is None:
            return None
        # More than that, since not each of them will be wrong.
        limit = max(-(-3 * earliest // 2), everything // 6)
        return None if limit > everything // 3 else limit


def saving(trials: Sequence[Trial], baseline: Score | None) -> str | None:
    """One sentence on what racing saved in this run; None where nothing was."""
    scores = [trial.score for trial in trials if trial.score is not None and not trial.recalled]
    raced = [score for score in scores if score.raced_out]
    if not raced or baseline is None or not baseline.samples:
        return None
    whole = baseline.samples * len(scores)
    seen = sum(score.samples or 0 for score in scores)
    held = any(score.estimated for score in raced)
    why = "it was clear whether the bar is met" if held else "the bar was out of reach"
    return (
        f"{len(raced)} of {len(scores)} evaluation(s) were stopped early, once {why}: {seen} of "
        f"{whole} samples were evaluated"
    )
