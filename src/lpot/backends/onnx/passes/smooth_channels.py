"""SmoothQuant in front of matrix products: what the activation loses is given to the weight.

The factors are powers of two, so that FP32 results stay bit for bit. One product is put in front of
all the layers that read a tensor; it costs little beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph
from lpot.backends.onnx.layers import Layer, layer_of, read_by, scale_read
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import Extremes
from lpot.core.ptq.smoothquant import smooth_factors

PRODUCTS = ("MatMul", "Gemm")


def smooth_channels(
    graph: Graph, low: Iterable[str], extremes: Mapping[str, Extremes], alpha: float
) -> tuple[Graph, dict[str, TensorStats]]:
    """The graph with outlying inputs of the products in `low` smoothed, and their new ranges.

    `alpha` is how much of the difficulty moves to the weights: 0 none, 1 all.
    """
    chosen = frozenset(low)
    readers = _readers(graph, extremes)
    weights = dict(graph.weights)
    stats: dict[str, TensorStats] = {}
    added: dict[str, NodeProto] = {}
    renamed: dict[str, str] = {}
    for name, layers in readers.items():
        if not any(layer.node.name in chosen for layer in layers):
            continue
        # Of all its readers, so that a weight's factors do not depend on what else is low.
        read = np.max([read_by(weights, layer) for layer in layers], axis=0)
        factors = smooth_factors(extremes[name].largest, read, alpha)
        smooth = f"{name}/smooth"
        weights[f"{smooth}/factors"] = (1.0 / factors).astype(np.float32)
        added[name] = helper.make_node(
            "Mul", [name, f"{smooth}/factors"], [smooth], name=smooth, doc_string=DERIVED
        )
        stats[smooth] = TensorStats.empty()
        stats[smooth].update(extremes[name].smoothed(factors))
        for layer in (layer for layer in layers if layer.node.name in chosen):
            renamed[layer.node.name] = smooth
            scale_read(weights, layer, factors.astype(np.float32))
    return _with_products(graph, weights, added, renamed), stats


def smoothed_means(graph: Graph, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The means of tensors that were smoothed, by those of the tensors behind them."""
    found = {}
    for name, mean in means.items():
        factors = graph.weights.get(f"{name}/smooth/factors")
        if factors is not None:
            found[f"{name}/smooth"] = mean * factors
    return found


def _readers(graph: Graph, extremes: Mapping[str, Extremes]) -> dict[str, list[Layer]]:
    """The products that read outlying tensors, each with weights of its own."""
    found: dict[str, list[Layer]] = {}
    for node in graph.nodes:
        if node.op_type not in PRODUCTS or node.input[0] not in extremes:
            continue
        layer = layer_of(graph, node)
        if layer is not None and extremes[node.input[0]].outlies:
            found.setdefault(node.input[0], []).append(layer)
    return found


def _with_products(
    graph: Graph,
    weights: dict[str, np.ndarray],
    added: Mapping[str, NodeProto],
    renamed: Mapping[str, str],
) -> Graph:
    nodes: list[NodeProto] = [added[name] for name in graph.inputs if name in added]
    for node in graph.nodes:
        if node.name in renamed:
            twin = NodeProto()
            twin.CopyFrom(node)
            twin.input[0] = renamed[node.name]
            nodes.append(twin)
        else:
            nodes.append(node)
        nodes += [added[name] for name in node.output if name in added]
    return graph.replaced(nodes, weights)
