"""What each op saves in INT8 on this machine: timed alone, once for each kind and shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lpot.backends.tensorflow.build import build_net
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.plan import Plan, Shapes, plan
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.profile import profile
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.activations import SWISHES, match_activation
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Layer, Step, low_readers
from lpot.backends.tensorflow.structure.nodes import (
    data_inputs,
    make_node,
    tensor_name,
    with_inputs,
)
from lpot.core.backend import Observations
from lpot.core.numerics.rounding import TensorStats
from lpot.core.ptq.gains import identity, kernel_times
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.results.profile import OpTime

if TYPE_CHECKING:
    from lpot.backends.tensorflow import TensorflowBackend

RUNS = 12
DISPATCH = 2e-6  # seconds that each node of a graph takes beside its kernel
INPUT = "lpot/x"


class Times(NamedTuple):
    """Seconds of one op, and of bringing its input to 8 bits and its output back."""

    fp32: float
    int8: float
    quantize: float
    dequantize: float


def gains(
    backend: TensorflowBackend, model: TensorflowModel, recipe: Recipe, observations: Observations
) -> dict[OpKey, float]:
    """Seconds a batch that each op saves, less what converting costs where neighbours are float.

    An op that loses leaves floats to its neighbours: these are judged again without it. Where all
    lose, the one that loses least by itself counts as even: the graph around one INT8 op is folded,
    which the FP32 graph is not, and that may be worth more.
    """
    keys = {key.name: key for key in recipe.ops}
    times = _times(backend, model, recipe, observations)
    found: dict[OpKey, float] = {}
    while True:
        drawn = plan(model.prepared, recipe, observations.tensors, _shapes(observations))
        left = {
            keys[name]: _saved(times[name], *_converts(model.prepared, drawn, step))
            for name, step in drawn.steps.items()
            if name in times
        }
        found |= left
        losers = [key for key, saved in left.items() if saved < 0.0]
        if not losers:
            if found and max(found.values()) < 0.0:
                least = max(times, key=lambda name: _saved(times[name], 1.0, 1.0))
                found[keys[least]] = 0.0
            return found
        recipe = recipe.with_float(losers)


def _times(
    backend: TensorflowBackend, model: TensorflowModel, recipe: Recipe, observations: Observations
) -> dict[str, Times]:
    seen = _shapes(observations).seen
    ops = {}
    for key in recipe.low_ops:
        layer = model.prepared.layers.get(key.name)
        if layer is None:
            continue
        shape = tuple(seen.get(layer.x, ()))[: 2 if layer.is_matmul else 4]
        if not shape or 0 in shape:
            continue
        ops[key] = _Lone(backend, model.prepared.net, layer, shape, recipe.ops[key], observations)
    found = kernel_times(ops, backend.versions())
    return {key.name: Times(*times) for key, times in found.items()}


def _saved(times: Times, given: float, taken: float) -> float:
    return times.fp32 - times.int8 - given * times.quantize - taken * times.dequantize


def _shapes(observations: Observations) -> Shapes:
    return Shapes(observations.shapes)


def _converts(prepared: Prepared, drawn: Plan, step: Step) -> tuple[float, float]:
    """The op's share in quantizing its input, and in giving floats to those that want them."""
    readers = low_readers(prepared.net, drawn.steps)
    x = step.layer.x
    made_low = x in drawn.held or any(item.out == x for item in drawn.followers.values())
    low = readers.get(step.out, set()) | set(drawn.followers)
    users = {user.name for user in prepared.net.users.get(step.out, ())}
    floats = bool(users - low) or step.out in prepared.net.keep
    return 0.0 if made_low else 1.0 / max(1, len(readers.get(x, ()))), float(floats)


@dataclass(frozen=True, eq=False)
class _Lone:
    """One layer of a graph by itself, with an input of its own."""

    backend: TensorflowBackend
    net: Net
    layer: Layer
    shape: tuple[int, ...]
    config: OpConfig
    observations: Observations

    parts = Times._fields

    @cached_property
    def name(self) -> str:
        node = self.net.nodes[self.layer.node]
        weight = self.net.constant(self.layer.weight)
        assert weight is not None
        attributes = sorted((key, str(value)) for key, value in node.attr.items() if key[0] != "_")
        activations = self.layer.activation, self._end[0]
        return identity(node.op, self.shape, weight.shape, activations, attributes, DISPATCH)

    @cached_property
    def _end(self) -> tuple[str, str]:
        """(activation, node) where it ends: FP32 gets for nothing what TensorFlow fuses with it."""
        found = match_activation(self.net, self.layer.out, SWISHES)
        return found or ("", self.layer.out)

    def seconds(self, part: str) -> float:
        if part == "fp32":
            return _total(self._slow)
        if part == "int8":
            return _total(op for op in self._quick if op.role == "op")
        converts = (op for op in self._quick if op.role == "convert")
        return _total(op for op in converts if ("Dequantize" in op.kind) == (part == "dequantize"))

    @cached_property
    def _slow(self) -> tuple[OpTime, ...]:
        return self._profile(self._alone)

    @cached_property
    def _quick(self) -> tuple[OpTime, ...]:
        low = self._alone.prepared
        tensors: Mapping[str, TensorStats] = {
            INPUT: self.observations.tensors[self.layer.x],
            **{k: v for k, v in self.observations.tensors.items() if k in self.net.nodes},
        }
        observations = Observations(self.observations.samples, dict(tensors))
        made = build_net(low, Recipe({self.layer.key: self.config}), observations)
        return self._profile(TensorflowModel(self.backend, made.net))

    @cached_property
    def _alone(self) -> TensorflowModel:
        nodes: dict[str, NodeDef] = {}
        waiting = [self._end[1]]
        while waiting:
            name = waiting.pop()
            if name in nodes:
                continue
            node = self.net.nodes[name]
            inputs = [INPUT if item == self.layer.x else item for item in data_inputs(node)]
            nodes[name] = with_inputs(node, inputs)
            waiting += [tensor_name(item) for item in inputs if item != INPUT]
        sizes = tf.TensorShape(self.shape).as_proto()
        nodes[INPUT] = make_node("Placeholder", INPUT, [], dtype=tf.float32)
        nodes[INPUT].attr["shape"].shape.CopyFrom(sizes)
        ends = (INPUT,), (self._end[1],)
        net = Net(nodes, *ends, frozenset((INPUT, self._end[1])), self.net.header)
        return TensorflowModel(self.backend, net)

    def _profile(self, model: TensorflowModel) -> tuple[OpTime, ...]:
        x = np.random.default_rng(0).standard_normal(self.shape).astype(np.float32)
        try:
            return profile(model, {INPUT: x}, RUNS)
        finally:
            model.close()


def _total(ops: Iterable[OpTime]) -> float:
    return sum(op.seconds + DISPATCH for op in ops)
