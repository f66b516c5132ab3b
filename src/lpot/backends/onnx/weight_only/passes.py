"""Gemm with a constant matrix as MatMul and Add: there is one kind of product then."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import Graph, attribute


def split_gemm(graph: Graph, names: Collection[str] | None = None) -> Graph:
    """Those whose factors are 1; others stay, and in FP32. With names, those of these alone."""
    weights = dict(graph.weights)
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        wanted = names is None or node.name in names
        nodes += _split(graph, node, weights) if wanted and _is_plain(graph, node) else [node]
    return graph if nodes == list(graph.nodes) else graph.replaced(nodes, weights)


def _is_plain(graph: Graph, node: NodeProto) -> bool:
    if node.op_type != "Gemm" or not graph.is_constant(node.input[1]):
        return False
    return bool(
        attribute(node, "alpha", 1.0) == 1.0
        and attribute(node, "beta", 1.0) == 1.0
        and not attribute(node, "transA", 0)
    )


def _split(graph: Graph, node: NodeProto, weights: dict[str, np.ndarray]) -> list[NodeProto]:
    source = node.input[1]
    if attribute(node, "transB", 0):
        source = graph.fresh(f"{node.input[1]}/transposed")
        weights[source] = np.ascontiguousarray(graph.weights[node.input[1]].T)
    has_bias = len(node.input) > 2 and bool(node.input[2])
    product = graph.fresh(f"{node.name}/product") if has_bias else node.output[0]
    made = [helper.make_node("MatMul", [node.input[0], source], [product], name=node.name)]
    if has_bias:
        name = f"{node.name}/bias:Add"
        made.append(helper.make_node("Add", [product, node.input[2]], list(node.output), name=name))
    return made
