"""Perplexity against FP32, window by window: a trial ends as soon as its side of the bar is clear.

Both models read the same windows, so that what counts is the difference in each window, which
varies far less than the losses themselves. Windows are visited spread over the text. After some of
them the mean difference is known to within a few standard errors (of a sample from a finite text:
none is left when all of it was read). A trial so near the bar that only the whole text could tell
ends once its loss is known to a tenth of what may be lost. What a search hands back is read to the
end all the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import EvaluationError
from lpot.core.evaluation.evaluate import run_all
from lpot.core.evaluation.identity import Identity
from lpot.core.evaluation.race import Race
from lpot.core.model import Model
from lpot.core.numerics.resample import Counts, PieceBox
from lpot.core.progress import Listener
from lpot.core.trial import Score
from lpot.jobs.decoder.tokens import TokenWindows
from lpot.metric.language import losses

# -- The loss in each window of a text, FP32's on disk as it is found.


Loss = tuple[float, float]  # summed over a window's tokens, and how many these are


class KnownLosses:
    """Reading a text with FP32 takes longest of all: neither a kill nor another goal repeats it.

    Without a file it is as long as the program.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._known: dict[int, Loss] = {} if path is None else _read(path)

    def get(self, window: int) -> Loss | None:
        return self._known.get(window)

    def put(self, window: int, loss: Loss) -> None:
        self._known[window] = loss
        if self.path is None:
            return
        with contextlib.suppress(OSError):  # it is only slower without
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps([window, *loss]) + "\n")


def digest(*arrays: np.ndarray) -> str:
    """What tells one text from another."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(repr(array.shape).encode())
        found.update(np.ascontiguousarray(array, np.int64).tobytes())
    return found.hexdigest()[:16]


def _read(path: Path) -> dict[int, Loss]:
    """Lines that were cut off are passed over."""
    found: dict[int, Loss] = {}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                window, total, tokens = json.loads(line)
                if np.isfinite(total) and tokens > 0:
                    found[int(window)] = float(total), float(tokens)
    return found


ERRORS = 3.3  # standard errors that a difference must lie from the bar: one in two thousand
FEWEST = 16  # windows, below which a standard error means little
STEP = 4  # windows between two looks
LARGEST = 700.0  # nats whose exponential is a float
CLOSE = 0.1  # of what may be lost: a standard error that is enough while searching


def _exp(loss: float) -> float:
    """A perplexity, finite however bad the model is: a bad trial is a score, not a failure."""
    return math.exp(min(loss, LARGEST))


@dataclass(frozen=True, eq=False)
class WindowLosses:
    """Pieces of a perplexity: the summed loss and the tokens of each window."""

    keys: Sequence[int]
    totals: Counts
    tokens: Counts

    def score(self, counts: Counts) -> float:
        seen = float(counts @ self.tokens)
        return _exp(float(counts @ self.totals) / seen) if seen else math.nan


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
        self.name = f"metric {type(metric).__qualname__}"
        text = digest(windows.ids, windows.labels)
        self.identity = Identity(stated=f"text {text}, {self.name}")
        self.pieces = PieceBox()
        self._order = spread(len(windows.ids))
        self._fp32: list[float] = []  # summed loss of each window, in the order of the text
        self._known = KnownLosses()
        self._trials: dict[str, KnownLosses] = {}  # by recipe: one that ended early may be read on

    def keep_in(self, folder: Path) -> None:
        """Where FP32's losses are kept: a run that was killed, or another one, finds them there."""
        self._known = KnownLosses(
            folder / f"losses-{digest(self.windows.ids, self.windows.labels)}.jsonl"
        )

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        start = time.perf_counter()
        count = len(self._order)
        self.listener.expect(count)
        totals, tokens = np.zeros(count), np.zeros(count)
        is_fp32 = race is None and not self._fp32 and model.recipe is None
        known = self._known if is_fp32 else self._read_of(model)
        for number, at in enumerate(self._order, start=1):
            totals[at], tokens[at] = self._kept_loss(model, at, known)
            self.listener.step(number)
            if race is not None and number < count and self._is_look(number):
                seen = self._order[:number]
                stopped = self._stopped(race, seen, totals[seen], tokens[seen])
                if stopped is not None:
                    spent = time.perf_counter() - start
                    return Score(stopped[0], spent, number, bounds=stopped[1])
        self.pieces.put(model.recipe, WindowLosses(range(count), totals, tokens))
        if is_fp32:
            self._fp32 = totals.tolist()
        value = _exp(float(totals.sum() / tokens.sum()))
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

    def _read_of(self, model: Model) -> KnownLosses:
        """What was read before with the same recipe."""
        if model.recipe is None:
            return KnownLosses()
        return self._trials.setdefault(model.recipe.digest, KnownLosses())

    def _kept_loss(self, model: Model, at: int, known: KnownLosses) -> Loss:
        found = known.get(at)
        if found is None:
            found = self._loss(model, at)
            known.put(at, found)
        return found

    def _loss(self, model: Model, at: int) -> Loss:
        (batch,) = self.windows.part(slice(at, at + 1))
        inputs, labels = batch
        found = losses(run_all(model, inputs), labels)
        if not np.isfinite(found).all():
            raise EvaluationError(f"window {at + 1} of the text has a loss that is not a number")
        return float(found.sum()), float(found.size)

    def _stopped(
        self, race: Race, seen: Sequence[int], totals: Counts, tokens: Counts
    ) -> tuple[float, tuple[float, float]] | None:
        """The perplexity to expect and its bounds, once it is clear whether the bar holds, or that
        this text hardly tells: then a standard error is added, so that few turn out to miss it."""
        base = race.baseline.accuracy
        allowed = math.log(race.goal.bar(base) / base)
        differences = (totals - np.asarray(self._fp32)[seen]) / tokens.mean()
        found = standing(differences, len(self._order))
        is_clear = found.side(allowed) is not None
        if not is_clear and found.error > CLOSE * allowed:
            return None
        margin, more = ERRORS * found.error, 0.0 if is_clear else found.error
        low, value, high = (base * _exp(found.difference + off) for off in (-margin, more, margin))
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
