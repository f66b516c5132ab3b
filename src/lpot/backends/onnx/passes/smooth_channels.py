"""Even out outlier channels in front of matrix products: what is taken from the activation is given
to the weight.

The factors are powers of two, so that FP32 results stay bit for bit. One product is put in front of
all the layers that read a tensor; it costs little beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph
from lpot.backends.onnx.layers import Layer, layer_of, read_by, scale_read
from lpot.core.histogram import TensorStats

OUTLYING = 8.0  # largest channel over the middle one, from which on smoothing is worth a look
LIMIT = 10.0  # factors lie within 2 ** ±LIMIT
PRODUCTS = ("MatMul", "Gemm")


@dataclass(frozen=True, eq=False)
class Extremes:
    """The smallest and the largest value of each channel of a tensor."""

    low: np.ndarray
    high: np.ndarray

    @property
    def largest(self) -> np.ndarray:
        return np.maximum(np.abs(self.low), np.abs(self.high)).astype(np.float64)

    @property
    def outlies(self) -> bool:
        largest = self.largest
        alive = largest[largest > 0]
        return alive.size > 1 and float(alive.max()) > OUTLYING * float(np.median(alive))


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
        factors = _factors(extremes[name].largest, weights, layers, alpha)
        smooth = f"{name}/smooth"
        weights[f"{smooth}/factors"] = (1.0 / factors).astype(np.float32)
        added[name] = helper.make_node(
            "Mul", [name, f"{smooth}/factors"], [smooth], name=smooth, doc_string=DERIVED
        )
        stats[smooth] = TensorStats.empty()
        stats[smooth].update([(extremes[name].low / factors).min(), 0.0])
        stats[smooth].update([(extremes[name].high / factors).max(), 0.0])
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


def _factors(
    largest: np.ndarray, weights: Mapping[str, np.ndarray], layers: list[Layer], alpha: float
) -> np.ndarray:
    read = np.max([read_by(weights, layer) for layer in layers], axis=0).astype(np.float64)
    alive = (largest > 0) & (read > 0)
    wanted = largest[alive] ** alpha / read[alive] ** (1.0 - alpha)
    factors = np.ones_like(largest)
    powers = np.round(np.log2(wanted / np.exp(np.mean(np.log(wanted)))))
    factors[alive] = 2.0 ** np.clip(powers, -LIMIT, LIMIT)
    return factors


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
