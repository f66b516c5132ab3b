"""Perplexity against FP32, window by window: a trial ends as soon as its side of the bar is clear.

Both models read the same windows, so that what counts is the difference in each window, which
varies far less than the losses themselves. Windows are visited spread over the text. After some of
them the mean difference is known to within a few standard errors (of a sample from a finite text:
none is left when all of it was read). What a search hands back is read to the end all the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.core.errors import EvaluationError
from lpot.core.evaluate import run_all
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.race import Race
from lpot.core.resample import Counts, PieceBox
from lpot.core.trial import Score
from lpot.jobs.decoder.tokens import TokenWindows
from lpot.metric.language import losses

ERRORS = 3.3  # standard errors that a difference must lie from the bar: one in two thousand
FEWEST = 16  # windows, below which a standard error means little
STEP = 4  # windows between two looks


@dataclass(frozen=True, eq=False)
class WindowLosses:
    """Pieces of a perplexity: the summed loss and the tokens of each window."""

    keys: Sequence[int]
    totals: Counts
    tokens: Counts

    def score(self, counts: Counts) -> float:
        seen = float(counts @ self.tokens)
        return math.exp(float(counts @ self.totals) / seen) if seen else math.nan


@dataclass(frozen=True)
class Standing:
    """How the loss per token differs from FP32's after some of the windows."""

    difference: float
    error: float  # its standard error

    def side(self, allowed: float) -> bool | None:
        """Is no more lost than is allowed? None where these windows can't tell."""
        if abs(self.difference - allowed) <= ERRORS * self.error:
            return None
        return self.difference <= allowed


class PairedPerplexity:
    """Evaluates on windows of text; remembers FP32's loss in each."""

    grain: float | None = None

    def __init__(self, windows: TokenWindows, metric: Any, listener: Listener | None = None):
        self.windows = windows
        self.listener = listener or Listener()
        self.name = self.identity = f"metric {type(metric).__qualname__}"
        self.pieces = PieceBox()
        self._order = spread(len(windows.ids))
        self._fp32: list[float] = []  # summed loss of each window, in the order of the text

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        start = time.perf_counter()
        count = len(self._order)
        self.listener.expect(count)
        totals, tokens = np.zeros(count), np.zeros(count)
        for number, at in enumerate(self._order, start=1):
            totals[at], tokens[at] = self._loss(model, at)
            self.listener.step(number)
            if race is not None and number < count and self._is_look(number):
                seen = self._order[:number]
                stopped = self._stopped(race, seen, totals[seen], tokens[seen])
                if stopped is not None:
                    spent = time.perf_counter() - start
                    return Score(stopped[0], spent, number, bounds=stopped[1])
        self.pieces.put(model.recipe, WindowLosses(range(count), totals, tokens))
        if race is None and not self._fp32:
            self._fp32 = totals.tolist()
        value = math.exp(totals.sum() / tokens.sum())
        return Score(value, time.perf_counter() - start, count)

    @property
    def memory(self) -> dict[str, list[float]] | None:
        return {"losses": self._fp32} if self._fp32 else None

    def remember(self, memory: Any) -> None:
        known = memory.get("losses") if isinstance(memory, dict) else None
        if isinstance(known, list) and len(known) == len(self._order):
            self._fp32 = [float(value) for value in known]

    def _is_look(self, number: int) -> bool:
        return bool(self._fp32) and number >= FEWEST and number % STEP == 0

    def _loss(self, model: Model, at: int) -> tuple[float, float]:
        (batch,) = self.windows.part(slice(at, at + 1))
        inputs, labels = batch
        found = losses(run_all(model, inputs), labels)
        if not np.isfinite(found).all():
            raise EvaluationError(f"window {at + 1} of the text has a loss that is no number")
        return float(found.sum()), float(found.size)

    def _stopped(
        self, race: Race, seen: Sequence[int], totals: Counts, tokens: Counts
    ) -> tuple[float, tuple[float, float]] | None:
        """The perplexity to expect and its bounds, once it is clear whether the bar holds."""
        base = race.baseline.accuracy
        differences = (totals - np.asarray(self._fp32)[seen]) / tokens.mean()
        found = standing(differences, len(self._order))
        if found.side(math.log(race.goal.bar(base) / base)) is None:
            return None
        margin = ERRORS * found.error
        low, value, high = (
            base * math.exp(found.difference + off) for off in (-margin, 0.0, margin)
        )
        return value, (low, high)


def standing(differences: Counts, everything: int) -> Standing:
    """The mean difference and its standard error in a text of so many windows.

    >>> standing(np.array([0.1, 0.3]), 2)
    Standing(difference=0.2, error=0.0)
    """
    count = len(differences)
    left = 1 - count / everything
    error = float(differences.std(ddof=1)) * math.sqrt(left / count)
    return Standing(float(differences.mean()), error)


def spread(count: int) -> list[int]:
    """0 … count - 1 so that any first few lie spread over the whole: bits of the place, reversed.

    >>> spread(5)
    [0, 4, 2, 1, 3]
    """
    width = max(1, (count - 1).bit_length())
    turned = (int(f"{at:0{width}b}"[::-1], 2) for at in range(1 << width))
    return [at for at in turned if at < count]
