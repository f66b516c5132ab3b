"""Give every Gemm with constant weights alpha = beta = 1 and a bias of one number per column."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, attribute


def normalize_gemm(graph: Graph) -> Graph:
    weights = dict(graph.weights)
    nodes = [
        _normalized(graph, node, weights) if node.op_type == "Gemm" else node
        for node in graph.nodes
    ]
    same = all(new is old for new, old in zip(nodes, graph.nodes, strict=True))
    return graph if same else graph.replaced(nodes, weights)


def _normalized(graph: Graph, node: NodeProto, weights: dict[str, np.ndarray]) -> NodeProto:
    has_bias = len(node.input) > 2 and bool(node.input[2])
    if not graph.is_constant(node.input[1]) or (has_bias and not graph.is_constant(node.input[2])):
        return node
    alpha = np.float32(attribute(node, "alpha", 1.0))
    beta = np.float32(attribute(node, "beta", 1.0))
    weight = graph.weights[node.input[1]]
    columns = weight.shape[0] if attribute(node, "transB", 0) else weight.shape[1]
    bias = graph.weights[node.input[2]] if has_bias else None
    per_row = bias is not None and bias.ndim == 2 and bias.shape[0] != 1
    if bias is not None and (per_row or bias.size not in (1, columns)):
        return node  # one bias per row, or per element: no INT8 kernel takes it
    vector = bias is None or bias.shape == (columns,)
    if alpha == 1 and beta == 1 and vector:
        return node
    twin = NodeProto()
    twin.CopyFrom(node)
    kept = [item for item in twin.attribute if item.name not in ("alpha", "beta")]
    del twin.attribute[:]
    twin.attribute.extend(kept)
    if alpha != 1:
        twin.input[1] = graph.fresh(f"{node.name}/scaled_weight")
        weights[twin.input[1]] = weight * alpha
    if bias is not None:
        twin.input[2] = graph.fresh(f"{node.name}/scaled_bias")
        weights[twin.input[2]] = np.broadcast_to(bias.reshape(-1) * beta, (columns,)).copy()
    return twin
