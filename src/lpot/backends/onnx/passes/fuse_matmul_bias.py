"""Turn MatMul and the bias added behind it into one Gemm, which has an INT8 kernel with bias.

The runtime does the same to FP32 models; left to it, it comes before the quantized kernels are
chosen and hides the MatMul from them. More than two dimensions are flattened around the Gemm.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph


def fuse_matmul_bias(graph: Graph) -> Graph:
    weights = dict(graph.weights)
    fused: dict[str, NodeProto] = {}  # name of the Add → itself: nodes to drop
    replaced: dict[str, list[NodeProto]] = {}  # name of the MatMul → what stands for it
    flat: dict[str, str] = {}  # tensor → its flattened twin, shared by all who read it
    for node in graph.nodes:
        add = _bias_behind(graph, node)
        shape = graph.shapes.get(node.input[0]) if add is not None else None
        if add is None or shape is None or sum(not isinstance(dim, int) for dim in shape[:-1]) > 1:
            continue
        if graph.weights[_other(add, node.output[0])].ndim > len(shape):
            continue  # the sum has more dimensions than the product
        fused[add.name] = add
        replaced[node.name] = list(_gemm(graph, node, add, shape, weights, flat))
    if not fused:
        return graph
    nodes = [new for node in graph.nodes for new in replaced.get(node.name, [node])]
    return graph.replaced([node for node in nodes if node.name not in fused], weights)


def _bias_behind(graph: Graph, node: NodeProto) -> NodeProto | None:
    if node.op_type != "MatMul" or not graph.is_constant(node.input[1]):
        return None
    weight = graph.weights[node.input[1]]
    users = graph.consumers.get(node.output[0], [])
    if weight.ndim != 2 or len(users) != 1 or node.output[0] in graph.outputs:
        return None
    add = users[0]
    if add.op_type != "Add" or graph.is_constant(node.input[0]):
        return None
    bias = graph.weights.get(_other(add, node.output[0]))
    fits = bias is not None and bias.dtype == np.float32 and bias.size == weight.shape[1]
    return add if fits and bias is not None and bias.shape[-1:] == (bias.size,) else None


def _other(node: NodeProto, name: str) -> str:
    return str(node.input[1] if node.input[0] == name else node.input[0])


def _gemm(
    graph: Graph,
    node: NodeProto,
    add: NodeProto,
    shape: tuple[int | str | None, ...],
    weights: dict[str, np.ndarray],
    flat: dict[str, str],
) -> Iterator[NodeProto]:
    source, output = node.input[0], add.output[0]
    bias = _other(add, node.output[0])
    if weights[bias].ndim > 1:
        vector = graph.fresh(f"{bias}/vector")
        weights[vector] = weights[bias].reshape(-1)
        bias = vector
    if len(shape) == 2:
        yield helper.make_node("Gemm", [source, node.input[1], bias], [output], name=node.name)
        return
    rows, columns = graph.weights[node.input[1]].shape
    if source not in flat:
        flat[source] = graph.fresh(f"{source}/flat")
        yield _reshape(graph, source, [-1, rows], flat[source], weights)
    # Who reads the sum and is fused, too, takes it flat, as it comes.
    flat[output] = graph.fresh(f"{output}/flat")
    inputs = [flat[source], node.input[1], bias]
    yield helper.make_node("Gemm", inputs, [flat[output]], name=node.name)
    lead = [dim if isinstance(dim, int) else -1 for dim in shape[:-1]]
    yield _reshape(graph, flat[output], [*lead, columns], output, weights)


def _reshape(
    graph: Graph, source: str, shape: list[int], output: str, weights: dict[str, np.ndarray]
) -> NodeProto:
    name = graph.fresh(f"{output}/shape")
    weights[name] = np.array(shape)
    title = graph.fresh(f"{output}/reshape")
    return helper.make_node("Reshape", [source, name], [output], name=title, doc_string=DERIVED)
