"""What calibration saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.batch import Batch, Inputs
from lpot.core.errors import CalibrationError
from lpot.core.loader import copied as kept
from lpot.core.numerics.histogram import TensorStats

Array = npt.NDArray[np.floating[Any]]
Named = Mapping[str, Sequence[str] | Mapping[str, str]]

PROBE_SAMPLES = 32  # kept to compare outputs on
PROBE_BYTES = 64 << 20  # of a batch that is kept; the first is, whatever its size
NO_BATCH = "the calibration loader yielded no batch: it is empty, or an exhausted generator"
OUTLYING = 8.0  # largest channel over the middle one, from which on smoothing is worth a look


@dataclass(frozen=True, eq=False)
class Extremes:
    """The smallest and the largest value of each channel of a tensor."""

    low: Array
    high: Array

    @property
    def largest(self) -> npt.NDArray[np.float64]:
        return np.maximum(np.abs(self.low), np.abs(self.high)).astype(np.float64)

    @property
    def outlies(self) -> bool:
        largest = self.largest
        alive = largest[largest > 0]
        return alive.size > 1 and float(alive.max()) > OUTLYING * float(np.median(alive))

    def smoothed(self, factors: Array) -> tuple[float, float]:
        """The range of the whole tensor once its channels are divided by the factors."""
        low, high = (self.low / factors).min(), (self.high / factors).max()
        return float(min(low, 0.0)), float(max(high, 0.0))


@dataclass(frozen=True, eq=False)
class Observations:
    """What one pass over the calibration data showed, in bounded memory, by tensor (or module).

    `probe` keeps the inputs of the first batches, for label-free comparisons of outputs; it is
    never written to disk. A backend fills what it needs; only `tensors` is asked of all.
    """

    samples: int
    tensors: Mapping[str, TensorStats]
    probe: tuple[Inputs, ...] = ()
    channels: Mapping[str, Extremes] = field(default_factory=dict)
    powers: Mapping[str, Array] = field(default_factory=dict)  # mean squares of channels
    means: Mapping[str, Array] = field(default_factory=dict)  # of channels
    factors: Mapping[str, Array] = field(default_factory=dict)  # by which channels were equalized
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    bodies: Mapping[str, Observations] = field(default_factory=dict)  # of graphs inside the graph
    own: Named = field(default_factory=dict)  # names that one backend alone knows what to do with


def copied(stats: Mapping[str, TensorStats]) -> dict[str, TensorStats]:
    """A copy that later batches leave alone; refuses statistics of what is not a number."""
    broken = [name for name, item in stats.items() if item.nan]
    if broken:
        infinite = [name for name, item in stats.items() if item.inf]
        cause = f"; it begins with infinity in {infinite[0]!r}" if infinite else ""
        raise CalibrationError(
            f"tensor {broken[0]!r} holds NaN during calibration ({len(broken)} tensor(s) do)"
            f"{cause}: look for NaN and infinity in the calibration data, or in the model's weights"
        )
    return {name: item.copy() for name, item in stats.items()}


class ChannelStats:
    """Extremes and means of channels over all batches so far, by tensor (or module)."""

    def __init__(self) -> None:
        self._extremes: dict[str, Array] = {}  # smallest and largest, in two rows
        self._means: dict[str, Array] = {}

    def widen(self, name: str, low: Array, high: Array) -> None:
        """A batch whose channels lie between these."""
        known = self._extremes.get(name, (low, high))
        self._extremes[name] = np.stack([np.minimum(known[0], low), np.maximum(known[1], high)])

    def average(self, name: str, mean: Array, share: float) -> None:
        """A batch that is such a share of all that was seen so far, with the means of its channels.

        Doubles: the weighted sum of two means near float32's end is beyond it.
        """
        known = self._means.get(name, mean)
        with np.errstate(invalid="ignore"):  # what is not finite is left out in the end
            self._means[name] = known * np.float64(1.0 - share) + mean * np.float64(share)

    def extremes(self) -> dict[str, Extremes]:
        return {name: Extremes(*rows) for name, rows in _finite(self._extremes).items()}

    def means(self) -> dict[str, Array]:
        return {name: mean.astype(np.float32) for name, mean in _finite(self._means).items()}


def _finite(found: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array for name, array in found.items() if np.isfinite(array).all()}


class Snapshots:
    """The books of one calibration pass: what was seen, a few batches, a snapshot for each size.

    `take` makes a snapshot of so many samples, with the batches kept so far. Size 0 stands for
    everything. Batches are copied if they are kept: loaders may write the next one into the same
    memory.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        take: Callable[[int, tuple[Inputs, ...]], Observations],
        copy: Callable[[Inputs], Inputs] = kept,
    ) -> None:
        self.seen = 0
        self._sizes = sizes
        self._take, self._copy = take, copy
        self._wanted = sorted({size for size in sizes if size > 0})
        self._done: dict[int, Observations] = {}
        self._probe: list[Inputs] = []
        self._probed = 0
        self._latest: Inputs | None = None

    def add(self, inputs: Inputs, count: int) -> None:
        """A batch of so many samples has been taken in. The very same inputs again show nothing
        new."""
        if not self._probe or (inputs is not self._latest and self._has_room(inputs)):
            self._probe.append(self._copy(inputs))
            self._probed += count
        self._latest = inputs
        self.seen += count
        while self._wanted and self.seen >= self._wanted[0]:
            self._done[self._wanted.pop(0)] = self._take(self.seen, tuple(self._probe))

    def _has_room(self, inputs: Inputs) -> bool:
        return self._probed < PROBE_SAMPLES and Batch(inputs).nbytes <= PROBE_BYTES

    @property
    def is_complete(self) -> bool:
        """Would more batches change nothing?"""
        return not self._wanted and 0 not in self._sizes

    def all(self) -> dict[int, Observations]:
        """By size; those that the data did not reach have all of it."""
        if not self.seen:
            raise CalibrationError(NO_BATCH)
        last = self._take(self.seen, tuple(self._probe))
        return {size: self._done.get(size, last) for size in self._sizes}
