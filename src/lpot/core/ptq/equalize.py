"""Cross-layer equalization: sharing out ranges between layers, the function unchanged.

Channel i between two layers may be divided by s_i before and multiplied by s_i after, as long as
what lies between lets positive factors through (ReLU, pooling): "Data-Free Quantization Through
Weight Equalization and Bias Correction" (2019), here over whole streams of makers and readers.
Powers of two change no bit of an FP32 result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.ptq.streams import Stream

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[Any]

ROUNDS = 4  # a chain of layers settles after a few

# Apply a scaling only if it is expected to cut the noise power of the second layer to a quarter:
# nets that nobody tore apart are left as they are.
WORTH = 4.0


class Layers(ABC):
    """A model's layers as equalization sees them: the adapter that a backend gives.

    Each verb is told the op; channels are counted from the first that the op makes or reads.
    """

    @abstractmethod
    def made(self, op: str) -> Floats:
        """By channel that the op makes, the largest weight or bias behind it."""

    @abstractmethod
    def read(self, op: str) -> Floats:
        """By channel that the op reads, the largest weight that reads it."""

    @abstractmethod
    def divide_made(self, op: str, factors: Array) -> None: ...

    @abstractmethod
    def multiply_read(self, op: str, factors: Array) -> None: ...

    def added(self, op: str) -> Floats:
        """By channel, the size of the constant that is added to a stream."""
        raise NotImplementedError("streams with constants of their own need `added`")

    def divide_added(self, op: str, factors: Array) -> None:
        raise NotImplementedError("streams with constants of their own need `divide_added`")


def equalize(streams: Sequence[Stream], layers: Layers) -> dict[int, Array]:
    """Scale the layers of every stream that gains from it; its number → its factors in all."""
    found: dict[int, Array] = {}
    for _ in range(ROUNDS):
        moved = False
        for number, stream in enumerate(streams):
            scales = _scales(stream, layers)
            if scales is not None:
                _scale(stream, layers, scales)
                found[number] = found.get(number, 1.0) * scales
                moved = True
        if not moved:
            break
    return {number: factors for number, factors in found.items() if (factors != 1.0).any()}


def _scales(stream: Stream, layers: Layers) -> Array | None:
    made, read = np.zeros(stream.size), np.zeros(stream.size)
    for op, start in stream.makers:
        _raise(made, layers.made(op), start)
    for op, start in stream.biases:
        _raise(made, layers.added(op), start)
    for op, start in stream.readers:
        _raise(read, layers.read(op), start)
    return channel_scales(made, read) if np.isfinite([made, read]).all() else None


def _raise(largest: Array, values: Floats, start: int) -> None:
    part = largest[start : start + len(values)]
    np.maximum(part, values, out=part)


def _scale(stream: Stream, layers: Layers, scales: Array) -> None:
    for op, start in stream.makers:
        layers.divide_made(op, scales[start : start + len(layers.made(op))])
    for op, start in stream.biases:
        layers.divide_added(op, scales[start : start + len(layers.added(op))])
    for op, start in stream.readers:
        layers.multiply_read(op, scales[start : start + len(layers.read(op))])


def channel_scales(first: npt.ArrayLike, second: npt.ArrayLike) -> Array | None:
    """Factors s for the channels between two layers; None when there is little to gain.

    Args:
        first: per channel, the largest weight (or bias) that makes it.
        second: per channel, the largest weight that reads it.

    >>> channel_scales([1.0, 16.0, 1.0], [1.0, 1 / 16, 1.0])
    array([0.5, 8. , 0.5])
    >>> channel_scales([1.0, 0.9], [0.8, 1.0]) is None
    True

    A channel that nobody reads must not set the range of those that are read:

    >>> channel_scales([1.0, 100.0, 0.9], [0.8, 0.0, 1.0])
    array([  1., 128.,   1.])
    """
    makes = np.asarray(first, np.float64)
    reads = np.asarray(second, np.float64)
    alive = (makes > 0) & (reads > 0)
    factors = _even(makes, reads, alive) if alive.sum() > 1 else np.ones_like(makes)
    if alive.any():
        most = (makes / factors)[alive].max()
        unread = (reads == 0) & (makes > most)
        factors[unread] = 2.0 ** np.ceil(np.log2(makes[unread] / most))
    return factors if np.any(factors != 1.0) else None


def _even(makes: Array, reads: Array, alive: npt.NDArray[np.bool_]) -> Array:
    """Factors for the channels that are read; ones when there is little to gain."""
    wanted = np.sqrt(makes[alive] / reads[alive])
    factors = np.ones_like(makes)
    # Around their own middle: a factor common to all channels gains nothing.
    factors[alive] = 2.0 ** np.round(np.log2(wanted / np.exp(np.mean(np.log(wanted)))))
    before = makes[alive].max() ** 2 * np.sum(reads[alive] ** 2)
    after = (makes / factors)[alive].max() ** 2 * np.sum((reads * factors)[alive] ** 2)
    return factors if before > WORTH * after else np.ones_like(makes)
