"""SmoothQuant: outlier channels of an activation are moved into the weights that read it.

Channel c of the activation is divided by a factor, row c of every weight that reads it multiplied
by the same, as in "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large
Language Models" (2022). Factors are powers of two, so that FP32 results stay bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lpot.core.numerics.observations import Array, Extremes
from lpot.core.repairs import Repairs

ALPHAS = (0.35, 0.5, 0.65, 0.8)
LIMIT = 10.0  # factors lie within 2 ** ±LIMIT
KEPT = (1.0, 2.0, 4.0, 8.0)  # middle channels that a channel may be as large as
ROWS = 128  # of a weight, which tell enough of its rounding


def smoothings(repairs: Repairs) -> Iterator[Repairs]:
    """The same with each strength that is worth a look; nobody knows the best beforehand."""
    return (replace(repairs, smoothing=alpha) for alpha in ALPHAS)


def smooth_factors(
    largest: npt.ArrayLike, read: npt.ArrayLike, alpha: float
) -> npt.NDArray[np.float64]:
    """By what to divide each channel.

    Args:
        largest: per channel, the largest activation.
        read: per channel, the largest weight that reads it.
        alpha: how much of the difficulty moves to the weights: 0 none, 1 all.

    >>> smooth_factors([1.0, 64.0, 1.0], [1.0, 1.0, 1.0], 0.5)
    array([0.5, 4. , 0.5])
    >>> smooth_factors([1.0, 64.0, 1.0], [1.0, 0.0, 1.0], 0.5)
    array([ 1., 64.,  1.])
    """
    makes = np.asarray(largest, np.float64)
    reads = np.asarray(read, np.float64)
    alive = (makes > 0) & (reads > 0)
    factors = np.ones_like(makes)
    if not alive.any():
        return factors
    wanted = makes[alive] ** alpha / reads[alive] ** (1.0 - alpha)
    powers = np.round(np.log2(wanted / np.exp(np.mean(np.log(wanted)))))
    factors[alive] = 2.0 ** np.clip(powers, -LIMIT, LIMIT)
    most = (makes / factors)[alive].max()
    unread = (reads == 0) & (makes > most)  # a channel that nobody reads must not set the range
    factors[unread] = 2.0 ** np.ceil(np.log2(makes[unread] / most))
    return factors


@dataclass(frozen=True, eq=False)
class Smoothing:
    """Factors, and the noise expected without and with them, as shares of a product's power."""

    factors: npt.NDArray[np.float64]
    before: float
    after: float


def best_factors(seen: Extremes, power: npt.ArrayLike, weight: npt.ArrayLike) -> Smoothing:
    """The factors that leave the least noise in a product of which both sides are rounded.

    Args:
        seen: the input's extremes by channel.
        power: the input's mean square by channel.
        weight: of all that read it, one row for each output.

    >>> seen = Extremes(np.array([-1.0, -64.0, -1.0]), np.array([1.0, 64.0, 1.0]))
    >>> found = best_factors(seen, [0.1, 400.0, 0.1], np.eye(3))
    >>> found.factors.tolist(), found.after < found.before
    ([1.0, 64.0, 1.0], True)
    """
    rows = np.asarray(weight, np.float64)
    rows = rows[:: -(-len(rows) // ROWS)]
    powers = np.asarray(power, np.float64)
    largest, read = seen.largest, np.abs(rows).max(axis=0)
    middle = float(np.median(largest[largest > 0])) if (largest > 0).any() else 1.0
    tried = [np.ones_like(largest)]
    tried += [smooth_factors(largest, read, alpha) for alpha in ALPHAS]
    tried += [_bounded(largest, share * middle) for share in KEPT]
    noises = [_noise(factors, seen, powers, rows) for factors in tried]
    least = int(np.argmin(noises))
    return Smoothing(tried[least], noises[0], noises[least])


def _bounded(largest: npt.NDArray[np.float64], bound: float) -> npt.NDArray[np.float64]:
    """Divide only what is larger than the bound, down to it."""
    powers = np.round(np.log2(np.maximum(largest, bound) / bound))
    return np.asarray(2.0 ** np.minimum(powers, LIMIT), np.float64)


def _noise(
    factors: Array, seen: Extremes, power: npt.NDArray[np.float64], rows: npt.NDArray[np.float64]
) -> float:
    low, high = seen.smoothed(factors)
    step, left = (high - low) / 255.0, power / factors**2
    scaled = rows * factors
    width = np.maximum(np.abs(scaled).max(axis=1, keepdims=True), 1e-30) / 127.0
    off = (np.rint(scaled / width) * width - scaled) ** 2
    # A channel that always rounds to zero loses no more than it has.
    rounded = np.minimum(step**2 / 12.0, left)
    total = float(((rows**2) @ power).sum())
    found = float((scaled**2 @ rounded).sum() + (off @ left).sum())
    return found / total if total > 0.0 else 0.0
