"""Fold BatchNormalization into the Conv or ConvTranspose before it."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, attribute


def fold_batchnorm(graph: Graph) -> Graph:
    weights = dict(graph.weights)
    replaced: dict[str, NodeProto] = {}  # conv name → folded conv
    dropped: set[str] = set()
    for norm in graph.nodes:
        conv = _foldable(graph, norm, dropped)
        if conv is None:
            continue
        with np.errstate(all="ignore"):  # what overflows is left as it is, see below
            weight, bias = _fold(graph, conv, norm)
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            continue
        twin = NodeProto()
        twin.CopyFrom(conv)
        del twin.input[1:]
        twin.input.extend(graph.fresh(f"{conv.name}/folded_{part}") for part in ("weight", "bias"))
        twin.output[0] = norm.output[0]
        weights[twin.input[1]], weights[twin.input[2]] = weight, bias
        replaced[conv.name] = twin
        dropped.add(norm.name)
    if not replaced:
        return graph
    nodes = [replaced.get(node.name, node) for node in graph.nodes if node.name not in dropped]
    return graph.replaced(nodes, weights)


def _foldable(graph: Graph, norm: NodeProto, dropped: set[str]) -> NodeProto | None:
    if norm.op_type != "BatchNormalization" or attribute(norm, "training_mode", 0):
        return None
    conv = graph.producers.get(norm.input[0])
    if conv is None or conv.op_type not in ("Conv", "ConvTranspose") or conv.name in dropped:
        return None
    if len([name for name in norm.output if name]) > 1:
        return None
    shared = len(graph.consumers[conv.output[0]]) > 1 or conv.output[0] in graph.outputs
    constants = [*norm.input[1:5], *conv.input[1:]]
    if shared or not all(graph.is_constant(name) for name in constants if name):
        return None
    # A transposed convolution in groups stores its output channels split over two axes.
    if conv.op_type == "ConvTranspose" and int(attribute(conv, "group", 1) or 1) != 1:
        return None
    return conv


def _fold(graph: Graph, conv: NodeProto, norm: NodeProto) -> tuple[np.ndarray, np.ndarray]:
    gamma, beta, mean, variance = (
        graph.weights[name].astype(np.float64) for name in norm.input[1:5]
    )
    weight = graph.weights[conv.input[1]].astype(np.float64)
    has_bias = len(conv.input) > 2 and conv.input[2]
    bias = graph.weights[conv.input[2]].astype(np.float64) if has_bias else np.zeros_like(mean)
    epsilon = attribute(norm, "epsilon", 1e-5)
    assert isinstance(epsilon, float)
    factor = gamma / np.sqrt(variance + epsilon)
    shape = [1] * weight.ndim
    shape[0 if conv.op_type == "Conv" else 1] = -1
    folded = weight * factor.reshape(shape)
    return folded.astype(np.float32), ((bias - mean) * factor + beta).astype(np.float32)
