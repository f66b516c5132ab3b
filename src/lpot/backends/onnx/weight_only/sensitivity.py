"""What each op does to the answer in each format: the KL divergence of the logits, from one graph.

The weights are inputs of one session, so that another format is another feed and nothing is built.
Ops that quantize their input while running are shown the rounded input by a switch of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import feed, input_specs, session
from lpot.backends.onnx.weight_only.formats import label
from lpot.backends.onnx.weight_only.store import WeightStore
from lpot.core.batch import Inputs
from lpot.core.numerics import quantize_weight
from lpot.core.progress import tracked
from lpot.core.ptq.distance import distance
from lpot.core.recipe import OpConfig

QUICK = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
POSITIONS = 128  # of the probe whose answers are compared
LOGITS = "logits"
TOKENS = 256  # of a window that are read

Formats = Mapping[str, Sequence[OpConfig]]  # node → its low formats


def harms(
    graph: Graph, formats: Formats, probe: Inputs, store: WeightStore
) -> dict[str, dict[OpConfig, float]]:
    """Of each node, each alone in each of its formats.

    Among formats that round the weight alone the harm goes with the squared error of the product:
    the coarsest is run, the others follow from it.
    """
    bench = _Bench(graph, list(formats), cut(graph, probe))
    found: dict[str, dict[OpConfig, float]] = {}
    for name in tracked(list(formats)):
        rounded = [config for config in formats[name] if config.mode == "weight_only"]
        losses = {config: store.loss(name, label(config)) for config in rounded}
        found[name] = {}
        if rounded:
            coarsest = max(rounded, key=lambda config: losses[config])
            stored = store.get(name, label(coarsest))
            harm = bench.harm(name, stored.values())
            whole = losses[coarsest] or 1.0
            found[name] |= {config: harm * losses[config] / whole for config in rounded}
        for config in formats[name]:
            if config.mode == "dynamic":
                assert config.weight is not None and config.weight.bits is not None
                data, params = quantize_weight(bench.rows(name), 0, bits=config.weight.bits)
                values = data * np.asarray(params.scale, np.float32).reshape(-1, 1)
                found[name][config] = bench.harm(name, values, rounded_input=True)
    return found


def cut(graph: Graph, probe: Inputs) -> dict[str, np.ndarray]:
    """The first tokens of one sample: enough to tell ops apart."""
    fed = feed(input_specs(graph), probe)
    found = {}
    for name, array in fed.items():
        part = array[:1] if array.ndim else array
        is_text = part.ndim == 2 and part.dtype.kind == "i"
        found[name] = np.ascontiguousarray(part[:, :TOKENS] if is_text else part)
    return found


class _Bench:
    """One session whose weights and switches are fed."""

    def __init__(self, graph: Graph, names: Sequence[str], inputs: Mapping[str, np.ndarray]):
        self.nodes = {node.name: node for node in graph.nodes if node.name in set(names)}
        self.weights = graph.weights
        self.inputs = inputs
        opened = _opened(graph, list(self.nodes.values()))
        self.session = session(opened, QUICK)
        self.output = graph.outputs[0]
        fed = {_weight(node) for node in self.nodes.values()}
        self.usual: dict[str, np.ndarray] = {name: graph.weights[name] for name in fed}
        off = np.array(False)
        self.usual |= {_switch(node): off for node in self.nodes.values() if _has_switch(node)}
        self.truth = self._run({})

    def rows(self, name: str) -> np.ndarray:
        node = self.nodes[name]
        array = self.weights[_weight(node)]
        return array if node.op_type == "Gather" else np.ascontiguousarray(array.T)

    def harm(self, name: str, values: np.ndarray, rounded_input: bool = False) -> float:
        node = self.nodes[name]
        matrix = values if node.op_type == "Gather" else values.T
        feeds = {_weight(node): np.ascontiguousarray(matrix, np.float32)}
        if rounded_input:
            feeds[_switch(node)] = np.array(True)
        found = self._run(feeds)
        if self.output != LOGITS:
            return distance([self.truth], [found])
        return divergence(self.truth, found)

    def _run(self, changed: Mapping[str, np.ndarray]) -> np.ndarray:
        (found,) = self.session.run([self.output], {**self.inputs, **self.usual, **changed})
        if self.output != LOGITS or found.ndim != 3:
            return np.asarray(found)
        step = max(1, found.shape[1] // POSITIONS)
        return np.asarray(found[0, ::step])


def divergence(truth: np.ndarray, found: np.ndarray) -> float:
    """KL(truth ‖ found) of the softmax over the last axis, the mean over the others, in nats.

    >>> divergence(np.zeros((1, 2)), np.zeros((1, 2)))
    0.0
    """
    exact, other = _log_softmax(truth), _log_softmax(found)
    if not np.isfinite(other).all():
        return float("inf")
    return max(0.0, float((np.exp(exact) * (exact - other)).sum(axis=-1).mean()))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    made: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return made


def _weight(node: NodeProto) -> str:
    return str(node.input[0] if node.op_type == "Gather" else node.input[1])


def _switch(node: NodeProto) -> str:
    return f"{node.name}/lpot_switch"


def _has_switch(node: NodeProto) -> bool:
    return bool(node.op_type != "Gather")


def _opened(graph: Graph, chosen: Sequence[NodeProto]) -> Graph:
    """The graph with the chosen weights, and a switch for each product, as inputs."""
    header = type(graph.header)()
    header.CopyFrom(graph.header)
    for name in dict.fromkeys(map(_weight, chosen)):
        shape = list(graph.weights[name].shape)
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        header.graph.input.append(value)
    names = {node.name for node in chosen}
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.name in names and _has_switch(node):
            switch = helper.make_tensor_value_info(_switch(node), TensorProto.BOOL, [])
            header.graph.input.append(switch)
            nodes += _switched(node)
        else:
            nodes.append(node)
    fed = set(map(_weight, chosen))
    kept = {name: array for name, array in graph.weights.items() if name not in fed}
    return Graph(header, tuple(nodes), kept, graph.opaque, graph.types, graph.shapes)


def _switched(node: NodeProto) -> Iterator[NodeProto]:
    """The input as it is, or rounded to 8 bits over its own range as dynamic kernels do."""
    source, stem = node.input[0], f"{node.name}/lpot"
    made = helper.make_tensor_value_info(f"{stem}/rounded", TensorProto.FLOAT, None)
    parts = [f"{stem}/codes", f"{stem}/scale", f"{stem}/zero"]
    rounding = [
        helper.make_node("DynamicQuantizeLinear", [source], parts),
        helper.make_node("DequantizeLinear", parts, [f"{stem}/rounded"]),
    ]
    same = helper.make_tensor_value_info(f"{stem}/same", TensorProto.FLOAT, None)
    keeping = [helper.make_node("Identity", [source], [f"{stem}/same"])]
    yield helper.make_node(
        "If",
        [_switch(node)],
        [f"{stem}/input"],
        name=f"{stem}:If",
        then_branch=helper.make_graph(rounding, "rounded", [], [made]),
        else_branch=helper.make_graph(keeping, "same", [], [same]),
    )
    twin = NodeProto()
    twin.CopyFrom(node)
    twin.input[0] = f"{stem}/input"
    yield twin
