"""Even out torn channel ranges between layers, by powers of two: FP32 results stay bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, attribute
from lpot.core.equalize import channel_scales

# What lets a positive factor through, channel by channel.
THROUGH = ("Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Identity")
ROUNDS = 4  # a chain of layers settles after a few


def equalize_channels(graph: Graph) -> Graph:
    pairs = [pair for node in graph.nodes if (pair := _pair(graph, node)) is not None]
    weights = dict(graph.weights)
    changed = False
    for _ in range(ROUNDS):
        moved = [_equalize(weights, *pair) for pair in pairs]
        if not any(moved):
            break
        changed = True
    return graph.replaced(graph.nodes, weights) if changed else graph


def _pair(graph: Graph, first: NodeProto) -> tuple[NodeProto, NodeProto] | None:
    """The layer that alone reads what `first` makes, with nothing but THROUGH between them."""
    if not _is_layer(graph, first):
        return None
    name = first.output[0]
    while True:
        users = graph.consumers.get(name, [])
        if len(users) != 1 or name in graph.outputs:
            return None
        user = users[0]
        if _is_layer(graph, user):
            return (
                (first, user)
                if user.input[0] == name and _channels_fit(graph, first, user)
                else None
            )
        if user.op_type not in THROUGH:
            return None
        name = user.output[0]


def _is_layer(graph: Graph, node: NodeProto) -> bool:
    """A Conv or Gemm whose weights are its own: shared ones can't be scaled for one alone."""
    if node.op_type not in ("Conv", "Gemm"):
        return False
    if node.op_type == "Gemm" and (
        attribute(node, "transA", 0) or attribute(node, "alpha", 1.0) != 1.0
    ):
        return False
    if node.op_type == "Gemm" and attribute(node, "beta", 1.0) != 1.0:
        return False
    own = [name for name in node.input[1:] if name]
    return all(
        graph.is_constant(name)
        and len(graph.consumers[name]) == 1
        and graph.weights[name].dtype == np.float32
        and bool(np.isfinite(graph.weights[name]).all())
        for name in own
    )


def _channels_fit(graph: Graph, first: NodeProto, second: NodeProto) -> bool:
    return (
        _maker_view(graph.weights, first).shape[0] == _reader_view(graph.weights, second).shape[0]
    )


def _maker_view(weights: Mapping[str, np.ndarray], node: NodeProto) -> np.ndarray:
    """The weight as (channels it makes, everything else)."""
    array = weights[node.input[1]]
    if node.op_type == "Gemm" and not attribute(node, "transB", 0):
        array = array.T
    return array.reshape(array.shape[0], -1)


def _reader_view(weights: Mapping[str, np.ndarray], node: NodeProto) -> np.ndarray:
    """The weight as (channels it reads, everything else)."""
    array = weights[node.input[1]]
    if node.op_type == "Gemm":
        return array.T if attribute(node, "transB", 0) else array
    group = int(attribute(node, "group", 1) or 1)  # type: ignore[call-overload]
    outputs, inputs = array.shape[:2]
    # (group, out, in, …) → (group * in, out, …): channel c of group g is row g * in + c
    split = array.reshape(group, outputs // group, inputs, -1)
    return split.transpose(0, 2, 1, 3).reshape(group * inputs, -1)


def _equalize(weights: dict[str, np.ndarray], first: NodeProto, second: NodeProto) -> bool:
    maker, reader = _maker_view(weights, first), _reader_view(weights, second)
    made = np.abs(maker).max(axis=1)
    bias = first.input[2] if len(first.input) > 2 and first.input[2] else ""
    if bias:
        made = np.maximum(made, np.abs(weights[bias]).reshape(-1))
    factors = channel_scales(made, np.abs(reader).max(axis=1))
    if factors is None:
        return False
    scale = factors.astype(np.float32)
    weights[first.input[1]] = _scaled_maker(weights[first.input[1]], first, 1.0 / scale)
    if bias:
        weights[bias] = weights[bias] / scale.reshape(weights[bias].shape)
    weights[second.input[1]] = _scaled_reader(weights[second.input[1]], second, scale)
    return True


def _scaled_maker(array: np.ndarray, node: NodeProto, scale: np.ndarray) -> np.ndarray:
    if node.op_type == "Gemm" and not attribute(node, "transB", 0):
        return array * scale
    return array * scale.reshape(-1, *[1] * (array.ndim - 1))


def _scaled_reader(array: np.ndarray, node: NodeProto, scale: np.ndarray) -> np.ndarray:
    if node.op_type == "Gemm":
        return array * scale if attribute(node, "transB", 0) else array * scale[:, None]
    group = int(attribute(node, "group", 1) or 1)  # type: ignore[call-overload]
    outputs, inputs = array.shape[:2]
    spread = scale.reshape(group, 1, inputs).repeat(outputs // group, axis=1)
    return array * spread.reshape(outputs, inputs, *[1] * (array.ndim - 2))
