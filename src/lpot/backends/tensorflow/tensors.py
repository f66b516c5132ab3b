"""What each op gives in FP32 and in INT8, side by side; and the graph as a person draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.simulate_ops import (
    NOBODY,
    rounded_weight,
    simulate_plan,
)
from lpot.backends.tensorflow.passes.watch_tensors import SAMPLED, watch
from lpot.backends.tensorflow.plan import Plan
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.quick import QuickSession
from lpot.backends.tensorflow.run import feed, first_line
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import data_inputs, full_name, node_name
from lpot.core.batch import Inputs
from lpot.core.errors import DataError, UnsupportedModel
from lpot.core.recipe import OpKey
from lpot.core.results.report import GraphNode
from lpot.core.results.tensors import Glimpse, OpTensors, Pair

Weights = tuple[Glimpse, Glimpse] | tuple[None, None]


def tensors(
    model: TensorflowModel, low: TensorflowModel, ops: Sequence[OpKey], inputs: Inputs
) -> dict[OpKey, Pair]:
    """Ops end where their INT8 kernel ends: behind bias, activation and sum.

    The kernels hand 8 bits to each other; a float graph that rounds as they do shows what they see.
    """
    if low.drawn is None:
        if low.recipe is None or low.recipe.low_ops:
            raise UnsupportedModel(
                "a TensorFlow file does not record which op became what: give the workspace it was "
                "tuned in instead"
            )
        return _in_float(model, ops, inputs)
    prepared, plan = low.drawn
    places = {key: _end(prepared, plan, key) for key in ops}
    wanted = {key: end for key, end in places.items() if end is not None}
    if not wanted:
        return {}
    net, which, moved = simulate_plan(prepared, plan)
    ends = [moved.get(name, name) for name in wanted.values()]
    feeds = feed(model.inputs, inputs)
    with _Watched(model, net, ends, which) as watched:
        exact = watched.run({**feeds, full_name(which): NOBODY})
        rounded = watched.run({**feeds, full_name(which): 0})
    found: dict[OpKey, Pair] = {}
    for key, before, after in zip(wanted, exact, rounded, strict=True):
        weights = _weights(prepared, plan, key)
        found[key] = (OpTensors(before, weights[0]), OpTensors(after, weights[1]))
    return found


def _in_float(model: TensorflowModel, ops: Sequence[OpKey], inputs: Inputs) -> dict[OpKey, Pair]:
    """Nothing is low precision: both sides are the same."""
    prepared = model.prepared
    layers = {key: prepared.layers[key.name] for key in ops if key.name in prepared.layers}
    ends = [layer.out for layer in layers.values()]
    if not ends:
        return {}
    net = prepared.net
    with _Watched(model, net, ends) as watched:
        seen = watched.run(feed(model.inputs, inputs))
    found: dict[OpKey, Pair] = {}
    for (key, layer), output in zip(layers.items(), seen, strict=True):
        weight = net.constant(data_inputs(net.nodes[layer.node])[1])
        both = OpTensors(output, None if weight is None else Glimpse.of(weight))
        found[key] = (both, both)
    return found


def _end(prepared: Prepared, plan: Plan, key: OpKey) -> str | None:
    if key.name in plan.steps:
        return plan.steps[key.name].out
    if key.name in prepared.layers:
        return prepared.layers[key.name].out
    return prepared.followers[key.name].out if key.name in prepared.followers else None


class _Watched:
    """A session that gives a few rows of each tensor, whatever its size."""

    def __init__(self, model: TensorflowModel, net: Net, ends: list[str], *more: str) -> None:
        self.model = model
        seen, self.fetches = watch(net, ends)
        names = [node_name(name) for group in self.fetches for name in group]
        kept = seen.cut((*names, *net.keep, *more))
        self.session = QuickSession(kept)

    def __enter__(self) -> _Watched:
        return self

    def __exit__(self, *error: object) -> None:
        self.session.close()

    def run(self, feeds: Mapping[str, Any]) -> list[Glimpse]:
        try:
            if self.model.iterator is not None:
                self.session.run(self.model.iterator, feeds)
            found = self.session.run(self.fetches, feeds)
        except tf.errors.OpError as error:
            raise DataError(f"TensorFlow failed on the batch: {first_line(error)}") from error
        return [_glimpse(tuple(map(int, shape)), rows) for _, _, shape, rows in found]


def _glimpse(shape: tuple[int, ...], rows: np.ndarray) -> Glimpse:
    """Rows as `watch` samples them: with a stride that shows in how many are left."""
    width = rows.shape[1] if rows.ndim == 2 and rows.shape[1] else 1
    whole = int(np.prod(shape)) // width
    stride = (whole // max(SAMPLED // width, 1)) | 1
    return Glimpse(rows.reshape(-1).astype(np.float32), shape, stride, width)


def _weights(prepared: Prepared, plan: Plan, key: OpKey) -> Weights:
    step = plan.steps.get(key.name)
    if step is None or step.config.weight is None:
        return None, None
    layer = step.layer
    weight = prepared.net.constant(data_inputs(prepared.net.nodes[layer.node])[1])
    real = rounded_weight(prepared, step, plan.taken(layer))
    if weight is None or weight.shape != real.shape:
        return None, None
    return Glimpse.of(np.asarray(weight)), Glimpse.of(real)


def wiring(model: TensorflowModel) -> tuple[GraphNode, ...]:
    """Nodes and who reads whom; constants, and what is made of them alone, are left out."""
    kept: set[str] = set()
    nodes = []
    for name in model.net.order:
        node = model.net.nodes[name]
        reads = tuple(dict.fromkeys(node_name(source) for source in data_inputs(node)))
        reads = tuple(source for source in reads if source in kept)
        if not reads and node.op != "Placeholder":
            continue
        kept.add(name)
        nodes.append(GraphNode(name, "input" if node.op == "Placeholder" else node.op, reads))
    return tuple(nodes)
