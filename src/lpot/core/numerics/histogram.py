"""What one tensor looked like over all calibration data, in bounded memory and with no given range.

The upper 16 bits of a float32 (sign, exponent, 7 mantissa bits) are the bin: 65536 bins of 0.4 to
0.8 % relative width cover every float, so nothing has to be known before the first batch, and two
histograms merge by addition. Every threshold algorithm reads the same one (see `threshold.py`).
"""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.errors import did_you_mean
from lpot.core.numerics.threshold import ALGORITHMS, Density, squared_error

Array = npt.NDArray[Any]

BINS = 1 << 16
_INF = 0x7F80  # upper half of +Inf; larger patterns with the same sign are NaN
_SIGN = 0x8000
_UINT32_LIMIT = (1 << 32) - 1
DEFAULT_PERCENTILE = 99.99


class TensorStats:
    """Streaming statistics of one tensor: log histogram, exact extremes, NaN and Inf counts.

    `count` is the number of finite values in the histogram; `minimum` and `maximum` are over finite
    values and are 0.0 before any was seen.

    >>> stats = TensorStats.empty()
    >>> stats.update(np.array([0.0, 1.0, 2.0, np.nan], dtype=np.float32))
    >>> stats.count, stats.nan, stats.range("minmax")
    (3, 1, (0.0, 2.0))
    """

    __slots__ = ("_counts", "_density", "_high", "_low", "_ranges", "inf", "nan")

    def __init__(self) -> None:
        # 32-bit counts halve the memory of hundreds of tensors; they widen before they overflow.
        self._counts: Array = np.zeros(BINS, dtype=np.uint32)
        self._low = math.inf
        self._high = -math.inf
        self.nan = 0
        self.inf = 0
        self._density: Density | None = None
        self._ranges: dict[tuple[str, bool, int, float], tuple[float, float]] = {}

    @classmethod
    def empty(cls) -> TensorStats:
        """Statistics of nothing yet."""
        return cls()

    def update(
        self,
        values: npt.ArrayLike,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> None:
        """Add values. They may be a subsample; then give the whole tensor's extremes."""
        flat = _as_float32(values)
        found = np.bincount(_upper_bits(flat), minlength=BINS)
        nan, inf = _count_specials(flat, found)
        if flat.size > nan + inf:
            low, high = _extremes(flat, clean=not (nan or inf))
            self._low, self._high = min(self._low, low), max(self._high, high)
        for bound in (minimum, maximum):
            if bound is None or math.isfinite(bound):
                continue
            # The whole tensor holds a special value that the subsample missed.
            if math.isnan(bound):
                nan = max(nan, 1)
            else:
                inf = max(inf, 1)
        if minimum is not None and math.isfinite(minimum):
            self._low = min(self._low, float(minimum))
        if maximum is not None and math.isfinite(maximum):
            self._high = max(self._high, float(maximum))
        self.nan += nan
        self.inf += inf
        self._add(found)

    def merge(self, other: TensorStats) -> TensorStats:
        """The statistics of both, as a new object."""
        merged = self.copy()
        merged._low = min(self._low, other._low)
        merged._high = max(self._high, other._high)
        merged.nan += other.nan
        merged.inf += other.inf
        merged._add(other._counts)
        return merged

    def copy(self) -> TensorStats:
        twin = TensorStats()
        twin._counts = self._counts.copy()
        twin._low, twin._high = self._low, self._high
        twin.nan, twin.inf = self.nan, self.inf
        twin._density, twin._ranges = self._density, dict(self._ranges)
        return twin

    def pack(self) -> Array:
        """All of it as one small float64 array (sparse bins), for files."""
        bins = np.flatnonzero(self._counts)
        head = np.array([self._low, self._high, self.nan, self.inf])
        return np.concatenate([head, bins, self._counts[bins]]).astype(np.float64)

    @classmethod
    def unpack(cls, packed: Array) -> TensorStats:
        """The statistics that `pack` wrote.

        >>> stats = TensorStats.empty()
        >>> stats.update([1.0, 2.0])
        >>> TensorStats.unpack(stats.pack()).range("minmax")
        (0.0, 2.0)
        """
        stats = cls()
        stats._low, stats._high = float(packed[0]), float(packed[1])
        stats.nan, stats.inf = int(packed[2]), int(packed[3])
        bins, counts = np.split(packed[4:].astype(np.int64), 2)
        found = np.zeros(BINS, dtype=np.int64)
        found[bins] = counts
        stats._add(found)
        return stats

    @property
    def minimum(self) -> float:
        return self._low if self._low <= self._high else 0.0

    @property
    def maximum(self) -> float:
        return self._high if self._low <= self._high else 0.0

    @property
    def count(self) -> int:
        return int(self._read().total)

    @property
    def power(self) -> float:
        """Mean square of the finite values."""
        return self._read().power

    def range(
        self,
        algorithm: str = "minmax",
        *,
        symmetric: bool = False,
        bits: int = 8,
        percentile: float = DEFAULT_PERCENTILE,
    ) -> tuple[float, float]:
        """The range to quantize, always with 0 in it and inside the exact extremes.

        Asking again costs a dict lookup, until the next update.
        """
        key = (algorithm, symmetric, bits, percentile)
        known = self._ranges.get(key)
        if known is None:
            if algorithm not in ALGORITHMS:
                accepted = ", ".join(ALGORITHMS)
                hint = did_you_mean(algorithm, ALGORITHMS)
                raise ValueError(f"unknown algorithm {algorithm!r}{hint} (accepted: {accepted})")
            known = ALGORITHMS[algorithm](self._read(), symmetric, 1 << bits, percentile)
            self._ranges[key] = known
        return known

    def error(self, lo: float, hi: float, levels: int = 256) -> float:
        """Expected squared error per value on `levels` points over [lo, hi], 0 among them."""
        return squared_error(self._read(), lo, hi, levels)

    def _add(self, found: Array) -> None:
        fits = int(self._counts.max()) + int(found.max()) <= _UINT32_LIMIT
        if self._counts.dtype == np.uint32 and not fits:
            self._counts = self._counts.astype(np.int64)
        np.add(self._counts, found, out=self._counts, casting="unsafe")
        self._density = None
        self._ranges.clear()

    def _read(self) -> Density:
        if self._density is None:
            self._density = _density(self._counts, self.minimum, self.maximum)
        return self._density

    def __repr__(self) -> str:
        return (
            f"TensorStats(count={self.count}, minimum={self.minimum:g}, maximum={self.maximum:g}, "
            f"nan={self.nan}, inf={self.inf})"
        )


def _as_float32(values: npt.ArrayLike) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32).reshape(-1)


def _upper_bits(flat: Array) -> Array:
    """Bin numbers as intp: bincount's own conversion takes twice the time of the counting."""
    if sys.byteorder == "little":
        return flat.view(np.uint16)[1::2].astype(np.intp)
    return (flat.view(np.uint32) >> 16).astype(np.intp)


def _count_specials(flat: Array, found: Array) -> tuple[int, int]:
    """(NaN, Inf) in these values. The bin of Inf may hold NaNs with a small payload too."""
    at_inf = int(found[_INF]) + int(found[_INF | _SIGN])
    nan = int(found[_INF + 1 : _SIGN].sum()) + int(found[(_INF | _SIGN) + 1 :].sum())
    if at_inf:
        nan = int(np.isnan(flat).sum())
        at_inf = int(np.isinf(flat).sum())
    return nan, at_inf


def _extremes(flat: Array, clean: bool) -> tuple[float, float]:
    finite = flat if clean else flat[np.isfinite(flat)]
    return float(finite.min()), float(finite.max())


@cache
def _ascending_bins() -> tuple[Array, Array, Array]:
    """Finite bins from most negative to most positive, with their lower and upper edges."""
    positive = np.arange(_INF, dtype=np.uint32)
    inner = (positive << 16).view(np.float32).astype(np.float64)
    outer = np.append(inner[1:], float(np.finfo(np.float32).max))
    # Bin 0 holds zero and denormals below 1e-40: its centre has to be exactly zero.
    outer[0] = 0.0
    bins = np.concatenate([(positive | _SIGN)[::-1], positive]).astype(np.intp)
    return (
        bins,
        np.concatenate([-outer[::-1], inner]),
        np.concatenate([-inner[::-1], outer]),
    )


def _density(counts: Array, minimum: float, maximum: float) -> Density:
    """The histogram's filled bins in ascending order, cut at the exact extremes."""
    bins, lower, upper = _ascending_bins()
    ordered = counts[bins]
    filled = np.flatnonzero(ordered)
    return Density(
        lower=np.clip(lower[filled], minimum, maximum),
        upper=np.clip(upper[filled], minimum, maximum),
        mass=ordered[filled].astype(np.float64),
        minimum=minimum,
        maximum=maximum,
    )
