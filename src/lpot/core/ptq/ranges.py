"""Is the usual range of a tensor a good one? Answers from calibration statistics alone."""

from __future__ import annotations

from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.threshold import ALGORITHMS

WORTH = 4.0  # times less squared error, from which on another range is worth a look
NOISY = 1e-3  # noise of an input that a range fixed beforehand should not make
TYPICAL = 75.0  # per cent of the values that are not larger than the typical one


def better_algorithm(stats: TensorStats) -> str | None:
    """The algorithm of least error for a tensor whose range minmax wastes on a few values."""
    errors = {word: stats.error(*stats.range(word)) for word in ALGORITHMS}
    best = min(errors, key=lambda word: errors[word])
    return best if errors["minmax"] > WORTH * errors[best] else None


def noise(stats: TensorStats | None) -> float:
    """A tensor's own quantization noise as a share of what most of its values are like.

    Not of its power: a few outliers would hide the noise that they bring upon all others.
    """
    if stats is None:
        return 0.0
    _, typical = stats.range("percentile", symmetric=True, percentile=TYPICAL)
    return stats.error(*stats.range("minmax")) / typical**2 if typical else 0.0
