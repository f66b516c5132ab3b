"""Write the mean over all pixels as GlobalAveragePool: that has an INT8 kernel, ReduceMean none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph, attribute, ints


def pool_means(graph: Graph) -> Graph:
    weights = dict(graph.weights)
    nodes: list[NodeProto] = []
    changed = False
    for node in graph.nodes:
        if node.op_type == "ReduceMean" and _is_global(graph, node):
            nodes += _pool(graph, node, weights)
            changed = True
        else:
            nodes.append(node)
    return graph.replaced(nodes, weights) if changed else graph


def _is_global(graph: Graph, node: NodeProto) -> bool:
    """Over height and width of images, by axes known beforehand."""
    shape = graph.shapes.get(node.input[0])
    numbers = graph.types.get(node.input[0], TensorProto.UNDEFINED)
    if shape is None or len(shape) != 4 or numbers != TensorProto.FLOAT:
        return False
    axes = ints(node, "axes")
    if len(node.input) > 1 and node.input[1]:
        given = graph.weights.get(node.input[1])
        axes = [] if given is None else [int(axis) for axis in given.reshape(-1)]
    return sorted(axis % 4 for axis in axes) == [2, 3]


def _pool(graph: Graph, node: NodeProto, weights: dict[str, np.ndarray]) -> Iterator[NodeProto]:
    source, output = node.input[0], node.output[0]
    if attribute(node, "keepdims", 1):
        yield helper.make_node("GlobalAveragePool", [source], [output], name=node.name)
        return
    wide = graph.fresh(f"{output}/wide")
    yield helper.make_node("GlobalAveragePool", [source], [wide], name=node.name)
    yield helper.make_node("Flatten", [wide], [output], name=f"{wide}:Flatten", doc_string=DERIVED)
