"""Keep weights as float16 in the file: half its size. ORT widens them once, when it opens it."""

from __future__ import annotations

from collections.abc import Container

from onnx import NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph
from lpot.core.numerics.rounding import halved


def store_halves(graph: Graph, ops: Container[str]) -> tuple[Graph, frozenset[str]]:
    """The weights of these ops, and the ops of which at least one could be stored so."""
    weights = dict(graph.weights)
    casts: dict[str, NodeProto] = {}
    nodes: list[NodeProto] = []
    stored: set[str] = set()
    for node in graph.nodes:
        twin = node
        for place, name in enumerate(node.input):
            if node.name not in ops:
                continue
            if name not in casts:
                values = halved(graph.weights.get(name))
                if values is None:
                    continue
                half = graph.fresh(f"{name}/fp16")
                weights[half] = values
                casts[name] = _cast(half, graph.fresh(f"{name}/wide"))
                nodes.append(casts[name])
            if twin is node:  # nodes are shared with other graphs
                twin = NodeProto()
                twin.CopyFrom(node)
            twin.input[place] = casts[name].output[0]
            stored.add(node.name)
        nodes.append(twin)
    return graph.replaced(nodes, weights), frozenset(stored)


def _cast(source: str, output: str) -> NodeProto:
    return helper.make_node(
        "Cast", [source], [output], name=f"{output}:Cast", doc_string=DERIVED, to=TensorProto.FLOAT
    )
