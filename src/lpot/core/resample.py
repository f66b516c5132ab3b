"""How sure a drop is: both models scored again and again on samples drawn with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from lpot.core.goal import Goal
from lpot.core.progress import tracked
from lpot.core.recipe import Recipe

DRAWS = 400
CONFIDENCE = 0.95
FEWEST = 10  # samples, below which an interval would say nothing
KEPT = 8  # evaluations whose pieces are kept: the best is among the latest

Counts = npt.NDArray[np.float64]


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
    """Where the drop lies, in the goal's own unit; a gain is negative."""

    low: float
    high: float
    samples: int
    confidence: float = CONFIDENCE
    draws: int = DRAWS

    def to_json(self) -> dict[str, float]:
        return dict(vars(self))


class PieceBox:
    """The pieces of the baseline and of the latest few models that were evaluated in full."""

    def __init__(self) -> None:
        self._kept: dict[str, Pieces] = {}

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
    """The percentile interval of the drop; None for too few samples, or other ones."""
    keys = list(before.keys)
    if len(keys) < FEWEST or set(keys) != set(after.keys):
        return None
    places = {key: at for at, key in enumerate(keys)}
    order = np.array([places[key] for key in after.keys])
    random = np.random.default_rng(seed)
    share = np.full(len(keys), 1.0 / len(keys))
    drops = []
    for _ in tracked(range(draws)):
        counts = random.multinomial(len(keys), share).astype(np.float64)
        one, other = before.score(counts), after.score(counts[order])
        usable = np.isfinite(one) and np.isfinite(other) and (one != 0 or goal.relative is None)
        if usable:
            drops.append(goal.drop(other, one))
    if len(drops) < draws / 2:
        return None
    outside = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(drops, [outside, 100 - outside])
    return Interval(float(low), float(high), len(keys), draws=len(drops))
