"""What each op gives in FP32 and in INT8, side by side; and the graph as a person draws it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph, attribute, reads
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.observe import SAMPLING, sampled
from lpot.backends.onnx.run import run_session, session
from lpot.core.batch import Inputs
from lpot.core.recipe import OpKey
from lpot.core.results.report import GraphNode
from lpot.core.results.tensors import Glimpse, OpTensors, Pair, stride_of

# Optimised sessions would fuse what is looked at; INT8 kernels are used by both.
QUICK = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
FLOATS = (TensorProto.FLOAT, 0)  # 0: of unknown type
# What the builder calls the integers of a weight.
STORED = re.compile(r"(?P<stem>(?P<weight>.*)/(?:axis(?P<axis>\d+)|tensor)/.*)/data")


def tensors(
    model: OnnxModel, low: OnnxModel, ops: Sequence[OpKey], inputs: Inputs
) -> dict[OpKey, Pair]:
    """First outputs and weights of the ops that both graphs have, by the FP32 model's names."""
    model.rest()
    low.rest()
    nodes = {node.name: node for node in model.prepared.nodes}
    wanted: dict[OpKey, str] = {}
    for key in ops:
        node = nodes.get(key.name)
        if node is None or model.prepared.types.get(node.output[0], 0) not in FLOATS:
            continue
        if node.output[0] in low.prepared.producers:
            wanted[key] = node.output[0]
    exact = _glimpses(model, model.prepared, list(wanted.values()), inputs)
    read = [_as_read(low.prepared, name) for name in wanted.values()]
    rounded = _glimpses(model, low.prepared, read, inputs)
    found: dict[OpKey, Pair] = {}
    stored = _Stored(low.prepared)
    for key, before, after in zip(wanted, exact, rounded, strict=True):
        node = nodes[key.name]
        weights = _weights(model.prepared, low.prepared, node, stored)
        found[key] = (OpTensors(before, weights[0]), OpTensors(after, weights[1]))
    return found


def _as_read(graph: Graph, name: str) -> str:
    """The tensor as its readers see it: behind its Q and DQ, where it has them."""
    for node in graph.consumers.get(name, ()):
        if node.op_type == "QuantizeLinear":
            for after in graph.consumers.get(node.output[0], ()):
                if after.op_type == "DequantizeLinear":
                    return str(after.output[0])
    return name


def _glimpses(model: OnnxModel, graph: Graph, names: list[str], inputs: Inputs) -> list[Glimpse]:
    """Samples of the tensors, from as much of the graph as makes them."""
    if not names:
        return []
    distinct = list(dict.fromkeys(names))
    wanted = set(distinct)
    kept: list[NodeProto] = []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(reads(node))
    header = ModelProto()
    header.CopyFrom(graph.header)
    nodes = [*reversed(kept)]
    for index, name in enumerate(distinct):
        nodes += sampled(f"lpot/{index}", name)
        output = f"lpot/shape/{index}"
        nodes.append(helper.make_node("Shape", [name], [output], name=output))
    del header.graph.output[:]
    header.graph.output.extend(
        helper.make_tensor_value_info(output, kind, None)
        for index in range(len(distinct))
        for output, kind in (
            (f"lpot/{index}/sample", TensorProto.FLOAT),
            (f"lpot/shape/{index}", TensorProto.INT64),
        )
    )
    bare = Graph(header, graph.nodes, graph.weights, graph.opaque, graph.types, graph.shapes)
    whole = bare.replaced(nodes, {**graph.weights, **SAMPLING})
    results = run_session(session(whole, QUICK, packs=False), model.inputs, inputs)
    found = {}
    for name, values, sizes in zip(distinct, results[::2], results[1::2], strict=True):
        shape = tuple(map(int, sizes))
        size = int(np.prod(shape)) if shape else 1
        found[name] = Glimpse(values.astype(np.float32), shape, stride_of(size))
    return [found[name] for name in names]


def _weights(
    exact: Graph, low: Graph, node: NodeProto, stored: _Stored
) -> tuple[Glimpse, Glimpse] | tuple[None, None]:
    """The op's weight, and what its integers stand for."""
    name = node.input[1] if len(node.input) > 1 else ""
    weight = exact.weights.get(name)
    if weight is None or weight.dtype != np.float32 or weight.ndim < 2:
        return None, None
    twin = stored.nodes.get(node.name)
    if twin is None:  # dynamic: the op is spelled out, its integers go by the weight's name
        real = stored.real(name)
    elif _is_smoothed(low, twin):
        return None, None  # its channels were scaled: nothing to compare with
    else:
        source = low.producers.get(twin.input[1])
        real = low.weights.get(twin.input[1])
        if source is not None and source.op_type == "DequantizeLinear":
            real = _dequantized(low, source)
    if real is None or real.shape != weight.shape:
        return None, None
    return Glimpse.of(weight), Glimpse.of(real)


def _is_smoothed(graph: Graph, node: NodeProto) -> bool:
    name = node.input[0]
    for _ in range(3):  # DQ, Q, product
        source = graph.producers.get(name)
        if source is None:
            return False
        if source.doc_string == DERIVED and source.op_type == "Mul":
            return True
        if source.op_type not in ("DequantizeLinear", "QuantizeLinear"):
            return False
        name = source.input[0]
    return False


def _dequantized(graph: Graph, node: NodeProto) -> np.ndarray | None:
    parts = [graph.weights.get(name) for name in node.input]
    data, scale = parts[:2]
    if data is None or scale is None:
        return None
    zero = parts[2] if len(parts) > 2 and parts[2] is not None else np.zeros_like(scale, data.dtype)
    if scale.ndim:
        form = [1] * data.ndim
        form[int(attribute(node, "axis", 1))] = -1
        scale, zero = scale.reshape(form), zero.reshape(form)
    real: np.ndarray = (data.astype(np.float32) - zero.astype(np.float32)) * scale
    return real


class _Stored:
    """A graph's nodes by name, and its integers by the name of the weight they stand for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = {node.name: node for node in graph.nodes}
        self.stems: dict[str, tuple[str, str]] = {}
        for known in graph.weights:
            found = STORED.fullmatch(known)
            if found is not None:
                self.stems.setdefault(found["weight"], (found["stem"], found["axis"] or ""))

    def real(self, name: str) -> np.ndarray | None:
        stem, axis = self.stems.get(name, ("", ""))
        data = self.graph.weights.get(f"{stem}/data")
        scale = self.graph.weights.get(f"{stem}/scale")
        if data is None or scale is None:
            return None
        if scale.ndim:
            form = [1] * data.ndim
            form[int(axis or 0)] = -1
            scale = scale.reshape(form)
        real: np.ndarray = data.astype(np.float32) * scale
        return real


def wiring(model: OnnxModel) -> tuple[GraphNode, ...]:
    """Nodes and who reads whom; what is made of constants alone is left out."""
    graph = model.graph
    constant = {*graph.weights, *graph.opaque}
    maker: dict[str, str] = {name: name for name in graph.inputs if name not in constant}
    nodes = [GraphNode(name, "input") for name in maker]
    for node in graph.nodes:
        reads = [name for name in node.input if name and name not in constant]
        if not reads:
            constant.update(node.output)
            continue
        maker |= {name: node.name for name in node.output if name}
        known = tuple(dict.fromkeys(maker[name] for name in reads if name in maker))
        nodes.append(GraphNode(node.name, node.op_type, known))
    return tuple(nodes)
