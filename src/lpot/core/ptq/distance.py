"""How far a model's outputs are from FP32's: the measure of error that needs no labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.batch import Batch

Array = npt.NDArray[Any]
Measure = Callable[[Sequence[Any], Sequence[Any]], float]

ENTRIES = 8  # of a channel, from which on its power means something
ENOUGH = 8  # samples that tell one op from another


def distance(truth: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Squared error over squared value, summed over the outputs; never NaN.

    Of one output the mean over its channels counts if that is more: a head gives pixels and shares
    in one tensor, and the small ones matter as well. Where FP32 itself is NaN or infinite there is
    nothing to compare with. An output that is neither where FP32 has a number is infinitely far.

    >>> distance([np.array([3.0, 4.0])], [np.array([3.0, 4.5])])
    0.01
    """
    exact, given = list(arrays(truth)), list(arrays(outputs))
    if len(exact) != len(given):  # a sequence of another length
        return math.inf
    return sum(map(_one, exact, given))


def unshifted_distance(truth: Sequence[Any], outputs: Sequence[Any]) -> float:
    """The distance of what is left without what all scores of a sample have in common.

    No label sees that: the classes are the same, and so are their probabilities.

    >>> unshifted_distance([np.array([[3.0, 5.0]])], [np.array([[103.0, 105.0]])])
    0.0
    """
    return distance(list(map(_centred, arrays(truth))), list(map(_centred, arrays(outputs))))


def mean_distance(
    truth: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]], measure: Measure = distance
) -> float:
    """Over the batches, whose outputs each holds."""
    return sum(map(measure, truth, found)) / len(truth)


def arrays(outputs: Any) -> Iterator[Array]:
    """Every array of a model's outputs, in a fixed order: sequences and maps are looked into.

    >>> [array.tolist() for array in arrays([np.ones(2), [{2: 0.25, 1: 0.75}]])]
    [[1.0, 1.0], 0.75, 0.25]
    """
    if isinstance(outputs, Mapping):
        for key in sorted(outputs):
            yield from arrays(outputs[key])
    elif isinstance(outputs, list | tuple):
        for item in outputs:
            yield from arrays(item)
    else:
        yield np.asarray(outputs)


def few(batches: Iterable[Any]) -> list[Any]:
    """The first batches, as many as it takes to see `ENOUGH` samples: loaders may give single ones.

    >>> [len(few([np.ones((size, 2))] * 20)) for size in (1, 6, 32)]
    [8, 2, 1]
    """
    chosen: list[Any] = []
    seen = 0
    for batch in batches:
        if seen >= ENOUGH:
            break
        chosen.append(batch)
        seen += _samples(batch)
    return chosen


def _samples(batch: Any) -> int:
    return Batch(batch if isinstance(batch, tuple | Mapping) else (batch,)).size


def _one(reference: Array, output: Array) -> float:
    if reference.shape != output.shape:
        return math.inf
    if reference.dtype.kind != "f":
        same = reference == output
        return 1.0 - float(np.mean(same)) if same.size else 0.0
    numbers = np.isfinite(reference)
    exact = np.where(numbers, reference, 0.0).astype(np.float64)
    given = np.where(numbers, output, 0.0).astype(np.float64)
    if not np.isfinite(given).all():
        return math.inf
    error, power = (given - exact) ** 2, exact**2
    whole = float(error.sum()) / (float(power.sum()) or 1.0)
    # Probabilities are compared as they are: of the least likely ones nobody asks.
    if not exact.size or (exact.min() >= 0.0 and exact.max() <= 1.0):
        return whole
    return max(
        whole, *(_by_channel(error, power, axis) for axis in {1, exact.ndim - 1} if axis > 0)
    )


def _centred(scores: Array) -> Array:
    """Rows of scores less their mean; whatever else an output may be, as it is."""
    if scores.dtype.kind != "f" or scores.ndim not in (2, 3) or scores.shape[-1] < 2:
        return scores
    exact = scores.astype(np.float64)
    numbers = np.isfinite(exact)  # a class may be ruled out by a score of -inf
    count = np.maximum(numbers.sum(-1, keepdims=True), 1)
    return np.asarray(exact - np.where(numbers, exact, 0.0).sum(-1, keepdims=True) / count)


def _by_channel(error: Array, power: Array, axis: int) -> float:
    """The mean over the channels of the share of its own power that each is off, at most all."""
    if error.ndim <= axis or error.size < ENTRIES * error.shape[axis]:
        return 0.0
    rest = tuple(other for other in range(error.ndim) if other != axis)
    wrong, right = error.sum(axis=rest), power.sum(axis=rest)
    alive = right > 0.0
    if not alive.any():
        return 0.0
    return float(np.minimum(wrong[alive] / right[alive], 1.0).mean())
