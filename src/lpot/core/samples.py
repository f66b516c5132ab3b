"""The scores of single samples, where a score is their mean: what tells how sure a drop is."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeanPieces:
    """One score for each sample; drawn again they give the mean of those drawn.

    >>> MeanPieces((0, 1), np.array([1.0, 0.0])).score(np.array([3.0, 1.0]))
    0.75
    """

    keys: Sequence[Hashable]
    scores: Counts

    def score(self, counts: Counts) -> float:
        total = float(counts.sum())
        return float(counts @ self.scores) / total if total else math.nan


class SampleScores:
    """Collects the scores of one evaluation, batch by batch, in whatever order these come."""

    def __init__(self) -> None:
        self._keys: list[Hashable] = []
        self._scores: list[Any] = []
        self._known = True

    def add(self, scores: Any, batch: Sequence[int] | int) -> None:
        """`batch` is the batch's place, or the numbers of its samples."""
        if scores is None or (not isinstance(batch, int) and len(batch) != len(scores)):
            self._known = False
        if not self._known:
            return
        count = range(len(scores))
        self._keys += [(batch, at) for at in count] if isinstance(batch, int) else list(batch)
        self._scores.append(np.asarray(scores, np.float64))

    def pieces(self, mean: float) -> MeanPieces | None:
        """None where single samples were not told, or where the score is not their mean."""
        if not self._known or not self._keys:
            return None
        scores = np.concatenate(self._scores)
        if not math.isclose(float(scores.mean()), mean, rel_tol=1e-9, abs_tol=1e-12):
            return None
        return MeanPieces(self._keys, scores)
