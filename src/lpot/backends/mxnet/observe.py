"""One pass over the calibration data: ranges and histograms of every tensor, in bounded memory.

The reductions run inside MXNet: what leaves it per tensor and batch is its minimum, its maximum
and at most 64 Ki sampled values, whatever its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lpot.backends.mxnet.fusion import Fusion
from lpot.backends.mxnet.model import MxnetModel
from lpot.backends.mxnet.network import Network
from lpot.backends.mxnet.run import Feeds, Runner, feed, fitting_shapes, unfused
from lpot.backends.mxnet.runtime import mx
from lpot.core.batch import Inputs
from lpot.core.errors import UnsupportedModel
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import Observations, Snapshots, copied

SAMPLED = 65536
FUSION_TOLERANCE = 1e-2  # of the largest value: rounding stays far below, a lost op far above


def observe(
    model: MxnetModel, batches: Iterable[Inputs], sizes: Sequence[int]
) -> dict[int, Observations]:
    """A snapshot for each size; size 0 stands for everything the loader gives."""
    observer = _Observer(model.even, model.fusion)
    stats = {name: TensorStats.empty() for name in model.fusion.tensors}
    found = Snapshots(sizes, lambda seen, probe: Observations(seen, copied(stats), probe))
    for inputs in batches:
        feeds = feed(model.network, inputs)
        if not found.seen:
            _check_fusion(model, feeds)
        count = next((len(array) for array in feeds.values() if array.ndim), 1)
        for name, low, high, values in observer(feeds):
            if values.size:
                stats[name].update(values, low, high)
        found.add(feeds, count)
        if found.is_complete:
            break
    return found.all()


def _check_fusion(model: MxnetModel, feeds: Feeds) -> None:
    """Does the fused graph, of which INT8 is made, give what the plain one gives?"""
    fused = Runner(model.even.around(model.fusion.symbol))(feeds)
    plain = unfused(model.network, feeds)
    for name, one, other in zip(model.output_names, plain, fused, strict=True):
        if one.dtype.kind != "f" or not np.isfinite(one).all():
            continue
        gap = float(np.abs(one - other).max(initial=0.0))
        if not gap <= FUSION_TOLERANCE * max(float(np.abs(one).max(initial=0.0)), 1e-6):
            raise UnsupportedModel(
                f"MXNet's own fusions change the outputs of this model ({name!r} by up to "
                f"{gap:.3g}): nothing built on them can be correct. Please report this with the "
                "model"
            )


class _Observer:
    """The fused network with reductions for outputs; made anew when a batch has another shape."""

    def __init__(self, network: Network, fusion: Fusion) -> None:
        self._network = network.around(fusion.symbol)
        self._internals = fusion.symbol.get_internals()
        names = self._internals.list_outputs()
        wanted = set(fusion.tensors)
        # Two tensors may share a name: both go into the statistics of that name.
        self._places = [(place, name) for place, name in enumerate(names) if name in wanted]
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._runner: Runner | None = None

    def __call__(self, feeds: Feeds) -> Iterable[tuple[str, float, float, np.ndarray]]:
        if not self._places:
            return
        shapes = {name: value.shape for name, value in feeds.items()}
        if self._runner is None or shapes != self._shapes:
            fitting_shapes(self._network, feeds)
            self._runner, self._shapes = Runner(self._reductions(shapes)), shapes
        results = self._runner(feeds)
        for index, (_, name) in enumerate(self._places):
            low, high, values = results[3 * index : 3 * index + 3]
            yield name, float(low[0]), float(high[0]), values

    def _reductions(self, shapes: Mapping[str, tuple[int, ...]]) -> Network:
        _, found, _ = self._internals.infer_shape(**shapes)
        outputs: list[Any] = []
        for place, _ in self._places:
            flat = mx.sym.reshape(self._internals[place], shape=(-1,))
            # One more than needed: a stride equal to a power of two would visit few channels.
            stride = int(np.prod(found[place])) // SAMPLED + 1
            sample = mx.sym.slice(flat, begin=(0,), end=(None,), step=(stride,))
            outputs += [mx.sym.min(flat), mx.sym.max(flat), sample]
        return self._network.around(mx.sym.Group(outputs))
