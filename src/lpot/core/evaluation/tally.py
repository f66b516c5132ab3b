"""A mean over samples while it is being made: how many were seen, what they add up to."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.batch import as_array
from lpot.core.errors import EvaluationError

Bounds = tuple[float, float]

UNBOUNDED: Bounds = (-math.inf, math.inf)
USUAL: Bounds = (0.0, 1.0)  # of a sample's score, where the user says nothing else


@dataclass(frozen=True)
class Tally:
    """So many samples seen, the sum of their scores, and the range of any one score."""

    seen: int = 0
    total: float = 0.0
    bounds: Bounds = UNBOUNDED

    @property
    def mean(self) -> float:
        return self.total / self.seen

    def range(self, samples: int) -> Bounds:
        """The lowest and highest that the mean over so many samples can still become.

        >>> Tally(seen=4, total=1.0, bounds=(0, 1)).range(samples=10)
        (0.1, 0.7)
        """
        left = samples - self.seen
        low, high = ((self.total + left * end) / samples for end in self.bounds)
        return low, high


def width(bounds: Bounds) -> float | None:
    """How far two scores can be apart; None where nobody knows."""
    low, high = bounds
    return high - low if math.isfinite(high - low) else None


@dataclass(frozen=True)
class Part:
    """Scores of some samples as an eval_func tells them."""

    count: int
    total: float
    least: float  # the lowest of them; of a sum, its mean
    most: float


def is_part(value: Any) -> bool:
    """Is it (sum, count), or an array with one score per sample?"""
    return isinstance(value, tuple) or (not isinstance(value, list) and np.ndim(value) == 1)


def read_part(value: Any, who: str) -> Part:
    """`(sum of scores, number of samples)`, or one score per sample as an array.

    >>> read_part((3, 4), "eval_func f"), read_part(np.array([True, False]), "eval_func f")
    (Part(count=4, total=3.0, least=0.75, most=0.75), Part(count=2, total=1.0, least=0.0, most=1.0))
    """
    if not isinstance(value, tuple) and not hasattr(value, "shape"):
        raise _not_a_part(value, who)  # a list may be meant as either
    try:
        # The two of a pair may be tensors, on any device.
        whole = [as_array(one) for one in value] if isinstance(value, tuple) else as_array(value)
        array = np.asarray(whole).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise _not_a_part(value, who) from error
    if array.ndim != 1 or (isinstance(value, tuple) and len(value) != 2):
        raise _not_a_part(value, who)
    if not np.isfinite(array).all():
        raise EvaluationError(f"{who} gave {value!r:.80}: scores must be finite numbers")
    if isinstance(value, tuple):
        total, count = float(array[0]), float(array[1])
        if count < 1 or not count.is_integer():
            raise _not_a_part(value, who)
        return Part(int(count), total, total / count, total / count)
    if not array.size:
        return Part(0, 0.0, math.inf, -math.inf)
    return Part(array.size, float(array.sum()), float(array.min()), float(array.max()))


def _not_a_part(value: Any, who: str) -> EvaluationError:
    return EvaluationError(
        f"{who} gave {value!r:.80}: expected (sum of scores, number of samples) as a tuple, or "
        "one score per sample as an array"
    )


# -- The scores of single samples, where a score is their mean: what tells how sure a drop is.


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

    def to_json(self) -> dict[str, str] | None:
        """For the history; None where that would be too much, or the samples have odd names."""
        if not 0 < len(self.scores) <= MOST_KEPT:
            return None
        keys = np.asarray(self.keys)
        if keys.dtype.kind not in "iu":
            return None
        return {"keys": _packed(keys.astype("<i8")), "scores": _packed(self.scores.astype("<f8"))}

    @classmethod
    def from_json(cls, raw: Any) -> MeanPieces:
        """Raises KeyError, TypeError or ValueError for what is no such thing."""
        scores = np.frombuffer(_unpacked(raw["scores"]), "<f8")
        keys = np.frombuffer(_unpacked(raw["keys"]), "<i8")
        rows = keys.reshape(len(scores), -1) if len(scores) else keys.reshape(0, 1)
        if rows.shape[1] == 1:
            return cls(rows[:, 0].tolist(), scores)
        return cls(list(map(tuple, rows.tolist())), scores)


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 6)).decode()


def _unpacked(text: str) -> bytes:
    """No more than was ever packed: a history may be anybody's file."""
    reader = zlib.decompressobj()
    try:
        return reader.decompress(base64.b64decode(text, validate=True), 16 * MOST_KEPT)
    except zlib.error as error:
        raise ValueError(str(error)) from error


MOST_KEPT = 1_000_000  # samples whose scores are written down


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

    def __len__(self) -> int:
        return len(self._keys) if self._known else 0

    def so_far(self) -> MeanPieces | None:
        """What was scored until now; None where single samples are not told."""
        if not len(self):
            return None
        return MeanPieces(self._keys, np.concatenate(self._scores))

    def pieces(self, mean: float) -> MeanPieces | None:
        """None where single samples were not told, or where the score is not their mean."""
        if not self._known or not self._keys:
            return None
        scores = np.concatenate(self._scores)
        if not math.isclose(float(scores.mean()), mean, rel_tol=1e-9, abs_tol=1e-12):
            return None
        return MeanPieces(self._keys, scores)
