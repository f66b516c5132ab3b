"""One pass over the calibration data: ranges, histograms and shapes, in bounded memory.

The reductions run inside the graph: what leaves it per tensor and batch is its minimum, maximum and
shape and at most some 64 Ki sampled values, whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.watch_tensors import (
    watch,
    watch_channels,
    watch_columns,
    watch_means,
)
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.quick import QuickSession
from lpot.backends.tensorflow.run import feed, first_line
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.structure.nodes import node_name
from lpot.core.batch import Inputs
from lpot.core.cpu import give_back
from lpot.core.errors import CalibrationError
from lpot.core.numerics.observations import NO_BATCH, ChannelStats, Observations, Snapshots, copied
from lpot.core.numerics.rounding import TensorStats

SHAPED_STEPS = 16  # shapes of so many batches are compared


def observe(
    model: TensorflowModel, batches: Iterable[Inputs], sizes: Sequence[int]
) -> dict[int, Observations]:
    """A snapshot for each size; size 0 stands for everything the loader gives."""
    stream = iter(batches)
    first = next(stream, None)
    if first is None:
        raise CalibrationError(NO_BATCH)
    model.close()  # two sessions at once would hold the weights twice as often
    scales = _scales(model, first)
    prepared = model.prepared.equalized(scales)
    net, fetches = watch(prepared.net, prepared.watched)
    net, columns = watch_columns(net, prepared.columns)
    net, means = watch_means(net, prepared.averaged)
    gathered = _Gathered(prepared, scales)
    found = Snapshots(sizes, gathered.snapshot)
    with QuickSession(net) as session:
        for feeds, results, count in _results(
            session, model, chain([first], stream), [fetches, columns, means], sizes
        ):
            gathered.update(results, found.seen, count)
            found.add(feeds, count)
    give_back()
    if not found.seen:
        raise CalibrationError("the graph's own iterator yielded no batch: is its data available?")
    return found.all()


def _scales(model: TensorflowModel, first: Inputs) -> dict[str, np.ndarray]:
    """By what to divide channels, from the largest values of the first batch."""
    prepared = model.prepared
    chosen = prepared.equalizable
    if not chosen:
        return {}
    net, fetches = watch_channels(prepared.net, list(chosen.values()))
    with QuickSession(net) as session:
        steps = _results(session, model, [first], fetches, (1,))
        peaks = next((results for _, results, _ in steps), None)
    if peaks is None:
        return {}
    named = dict(zip(chosen, peaks, strict=True))
    return prepared.factors({k: v for k, v in named.items() if np.isfinite(v).all()})


def _results(
    session: QuickSession,
    model: TensorflowModel,
    batches: Iterable[Inputs],
    fetches: Any,
    sizes: Sequence[int],
) -> Iterator[tuple[dict[str, Any], Any, int]]:
    """(feeds, what was fetched, samples) of each step."""
    for inputs in batches:
        feeds = feed(model.inputs, inputs)
        try:
            if model.iterator is None:
                yield feeds, session.run(fetches, feeds), _count(feeds)
                continue
            # The graph reads its data itself: one feed starts it, and it says when it is over.
            session.run(model.iterator, feeds)
            size = _fed_batch_size(feeds)
            limit = math.inf if 0 in sizes else math.ceil(max(sizes, default=1) / size)
            steps = 0
            while steps < limit:
                yield feeds, session.run(fetches), size
                steps += 1
        except tf.errors.OutOfRangeError:
            return
        except tf.errors.OpError as error:
            raise CalibrationError(
                f"TensorFlow failed on a calibration batch: {first_line(error)}"
            ) from error
        if model.iterator is not None:
            return


def _count(feeds: Mapping[str, Any]) -> int:
    return next((int(array.shape[0]) for array in feeds.values() if np.ndim(array)), 1)


def _fed_batch_size(feeds: Mapping[str, Any]) -> int:
    """The value fed to the input called batch_size; 1 where there is none."""
    for name, value in feeds.items():
        if "batch_size" in node_name(name) and np.size(value) == 1:
            return max(1, int(np.reshape(value, -1)[0]))
    return 1


class _Gathered:
    def __init__(self, prepared: Prepared, scales: Mapping[str, np.ndarray]) -> None:
        self.scales = scales
        self.columns, self.averaged = prepared.columns, tuple(prepared.averaged)
        self.channels = ChannelStats()
        self.stats = {name: TensorStats.empty() for name in prepared.watched}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.steps = 0

    def update(self, results: list[Any], seen: int, count: int) -> None:
        whole, columns, means = results
        for (name, stats), (low, high, shape, values) in zip(
            self.stats.items(), whole, strict=True
        ):
            if values.size:
                stats.update(values, float(low), float(high))
            if self.steps < SHAPED_STEPS:
                self.shapes[name] = (*self.shapes.get(name, ()), *map(int, shape))
        for name, (low, high) in zip(self.columns, columns, strict=True):
            self.channels.widen(name, low, high)
        for name, mean in zip(self.averaged, means, strict=True):
            self.channels.average(name, mean, count / (seen + count))
        self.steps += 1

    def snapshot(self, seen: int, probe: tuple[Inputs, ...]) -> Observations:
        return Observations(
            seen,
            copied(self.stats),
            probe,
            channels=self.channels.extremes(),
            means=self.channels.means(),
            factors=self.scales,
            shapes=dict(self.shapes),
        )
