"""Of two Reshapes in a row the first says nothing: the second reads what the first read."""

from __future__ import annotations

from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, attribute


def merge_reshapes(graph: Graph) -> Graph:
    source: dict[str, str] = {}  # what a Reshape gives → what the first in its row reads
    for node in graph.nodes:
        if node.op_type == "Reshape":
            source[node.output[0]] = source.get(node.input[0], node.input[0])
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type == "Reshape" and node.input[0] in source and _is_absolute(graph, node):
            twin = NodeProto()
            twin.CopyFrom(node)
            twin.input[0] = source[twin.input[0]]
            nodes.append(twin)
        else:
            nodes.append(node)
    bare = graph.replaced(nodes, graph.weights)
    unread = {name for name in source if name not in bare.consumers and name not in graph.outputs}
    if not unread:
        return graph
    return graph.replaced([node for node in nodes if node.output[0] not in unread], graph.weights)


def _is_absolute(graph: Graph, node: NodeProto) -> bool:
    """Whether its shape is known beforehand and takes no size over from its input."""
    shape = graph.weights.get(node.input[1])
    return shape is not None and (0 not in shape or bool(attribute(node, "allowzero", 0)))
