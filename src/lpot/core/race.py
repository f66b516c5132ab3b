"""Racing: an evaluation that can no longer reach the bar stops at once, exactly, at no risk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.core.goal import Goal
from lpot.core.trial import Score


@dataclass(frozen=True)
class Race:
    """The bar of a running search, for metrics that are means over a known number of samples."""

    goal: Goal
    baseline: Score

    def lost(self, metric: Any, seconds: float) -> Score | None:
        """A Score with bounds once the bar is out of reach, whatever is still to come."""
        everything = self.baseline.samples
        least, most = getattr(metric, "bounds", (-math.inf, math.inf))
        if not everything or not getattr(metric, "is_mean", False):
            return None
        left = everything - metric.seen
        low, high = ((metric.total + left * bound) / everything for bound in (least, most))
        best, worst = (high, low) if self.goal.higher_is_better else (low, high)
        if left <= 0 or math.isinf(best) or self.goal.is_met(best, self.baseline.accuracy):
            return None
        bound = worst if math.isfinite(worst) else best
        return Score(bound, seconds, metric.seen, bounds=(low, high))


def margins(preds: Any) -> float:
    """How narrowly a batch was decided: the mean gap between the two largest scores of a sample."""
    scores = np.asarray(preds)
    if scores.ndim != 2 or scores.shape[1] < 2 or scores.dtype.kind != "f":
        return math.inf
    top = np.partition(scores, -2, axis=1)[:, -2:]
    return float((top[:, 1] - top[:, 0]).mean())


def hardest_first(gaps: Sequence[float]) -> list[int]:
    """Batches in the order in which a bad model fails soonest."""
    return sorted(range(len(gaps)), key=lambda index: gaps[index])
