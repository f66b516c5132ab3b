"""One tensor in FP32 and in low precision: how far apart, where, and on which samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lpot.core.recipe import OpKey

Array = npt.NDArray[Any]
What = Literal["output", "weight"]

SAMPLED = 65536  # values kept of a tensor
BINS = 48
WORST = 3  # samples named
EQUAL = 200.0  # decibels: two tensors that are equal


@dataclass(frozen=True, eq=False)
class Glimpse:
    """A tensor's values, every `stride`-th of them, and the shape it has in whole.

    Where whole rows were taken, `width` is how many values one has.
    """

    values: Array
    shape: tuple[int, ...]
    stride: int = 1
    width: int = 1

    @classmethod
    def of(cls, array: Any) -> Glimpse:
        """
        >>> Glimpse.of(np.zeros((2, 3))).values.size
        6
        """
        whole = np.asarray(array)
        stride = stride_of(whole.size)
        values = whole.reshape(-1)[::stride].astype(np.float32)
        return cls(values, tuple(map(int, whole.shape)), stride)

    @property
    def shaped(self) -> Array:
        """In the tensor's own shape, where nothing was left out.

        >>> Glimpse.of(np.zeros((2, 3))).shaped.shape
        (2, 3)
        """
        whole = self.values.size == math.prod(self.shape)
        return self.values.reshape(self.shape) if whole else self.values

    @property
    def rows(self) -> Array:
        """For each value, the number of the sample in the batch that it belongs to."""
        size = math.prod(self.shape)
        count = self.shape[0] if self.shape and self.shape[0] else 1
        row, rest = np.divmod(np.arange(self.values.size), self.width)
        return (row * self.stride * self.width + rest) // max(1, size // count)


def stride_of(size: int) -> int:
    # One more than needed: a stride equal to a power of two would visit few channels.
    return size // SAMPLED + 1


@dataclass(frozen=True, eq=False)
class OpTensors:
    """What a backend tells of one op: its first output on a batch, and its weight, as floats."""

    output: Glimpse | None = None
    weight: Glimpse | None = None


Pair = tuple[OpTensors, OpTensors]  # FP32, low precision


@dataclass(frozen=True)
class Contrast:
    """FP32 against low precision. The histograms share their edges, which are evenly spaced."""

    op: OpKey
    what: What
    sqnr: float  # decibels; more is better
    largest_error: float
    fp32_range: tuple[float, float]
    low_range: tuple[float, float]
    edges: tuple[float, float]
    fp32_counts: tuple[int, ...]
    low_counts: tuple[int, ...]
    shape: tuple[int, ...] = ()
    worst_samples: tuple[tuple[int, float], ...] = ()  # number in the batch, decibels

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "op": [self.op.name, self.op.kind]}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Contrast:
        return cls(
            OpKey(*raw["op"]),
            raw["what"],
            float(raw["sqnr"]),
            float(raw["largest_error"]),
            (raw["fp32_range"][0], raw["fp32_range"][1]),
            (raw["low_range"][0], raw["low_range"][1]),
            (raw["edges"][0], raw["edges"][1]),
            tuple(raw["fp32_counts"]),
            tuple(raw["low_counts"]),
            tuple(raw["shape"]),
            tuple((int(number), float(sqnr)) for number, sqnr in raw["worst_samples"]),
        )


def contrast(op: OpKey, what: What, exact: Glimpse, low: Glimpse) -> Contrast | None:
    """None where the two are not of one shape, or hold nothing that can be compared."""
    if exact.shape != low.shape or not exact.values.size:
        return None
    truth, other = exact.values.astype(np.float64), low.values.astype(np.float64)
    sound = np.isfinite(truth) & np.isfinite(other)
    if not sound.any():
        return None
    known, found = truth[sound], other[sound]
    edges = float(min(known.min(), found.min())), float(max(known.max(), found.max()))
    span = edges if edges[1] > edges[0] else (edges[0] - 0.5, edges[1] + 0.5)
    return Contrast(
        op,
        what,
        _decibels(truth, other),
        float(np.abs(known - found).max()),
        (float(known.min()), float(known.max())),
        (float(found.min()), float(found.max())),
        span,
        tuple(map(int, np.histogram(known, BINS, span)[0])),
        tuple(map(int, np.histogram(found, BINS, span)[0])),
        exact.shape,
        _worst(exact.rows, truth, other) if what == "output" else (),
    )


def contrasts(pairs: Mapping[OpKey, Pair]) -> Iterator[Contrast]:
    """Outputs and weights of the ops that both models have."""
    for key, (exact, low) in pairs.items():
        sides: tuple[tuple[What, Glimpse | None, Glimpse | None], ...] = (
            ("output", exact.output, low.output),
            ("weight", exact.weight, low.weight),
        )
        for what, before, after in sides:
            if before is not None and after is not None:
                found = contrast(key, what, before, after)
                if found is not None:
                    yield found


def _decibels(truth: Array, other: Array) -> float:
    """Power of the signal over power of the error; a value lost to NaN is an error of its size.

    >>> round(_decibels(np.array([1.0, -1.0]), np.array([1.1, -1.1])))
    20
    """
    gap = np.where(np.isfinite(other), other - truth, truth)
    gap = np.where(np.isfinite(truth), gap, 0.0)
    signal = float(np.mean(np.where(np.isfinite(truth), truth, 0.0) ** 2))
    noise = float(np.mean(gap**2))
    if noise == 0:
        return EQUAL
    if signal == 0:
        return -EQUAL
    return max(-EQUAL, min(EQUAL, 10 * math.log10(signal / noise)))


def _worst(rows: Array, truth: Array, other: Array) -> tuple[tuple[int, float], ...]:
    numbers = np.unique(rows)
    if numbers.size < 2 or np.array_equal(truth, other):
        return ()
    found = [(int(n), _decibels(truth[rows == n], other[rows == n])) for n in numbers]
    return tuple(sorted(found, key=lambda item: item[1])[:WORST])
