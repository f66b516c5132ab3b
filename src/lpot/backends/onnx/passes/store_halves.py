"""Keep weights as float16 in the file: half its size. ORT widens them once, when it opens it."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
from onnx import NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph

LARGEST = float(np.finfo(np.float16).max)
FEWEST = 64  # values: a cast for less than that saves nothing


def store_halves(graph: Graph, ops: Container[str]) -> tuple[Graph, frozenset[str]]:
    """The weights of these ops, and the ops of which at least one could be stored so."""
    weights = dict(graph.weights)
    casts: dict[str, NodeProto] = {}
    nodes: list[NodeProto] = []
    stored: set[str] = set()
    for node in graph.nodes:
        twin = node
        for place, name in enumerate(node.input):
            if node.name not in ops or not _fits(graph.weights.get(name)):
                continue
            if name not in casts:
                half = graph.fresh(f"{name}/fp16")
                weights[half] = graph.weights[name].astype(np.float16)
                casts[name] = _cast(half, graph.fresh(f"{name}/wide"))
                nodes.append(casts[name])
            if twin is node:  # nodes are shared with other graphs
                twin = NodeProto()
                twin.CopyFrom(node)
            twin.input[place] = casts[name].output[0]
            stored.add(node.name)
        nodes.append(twin)
    return graph.replaced(nodes, weights), frozenset(stored)


def _fits(array: np.ndarray | None) -> bool:
    """Large enough to be worth it, and within float16's range."""
    if array is None or array.dtype != np.float32 or array.size < FEWEST:
        return False
    return bool(np.abs(array).max() <= LARGEST)


def _cast(source: str, output: str) -> NodeProto:
    return helper.make_node(
        "Cast", [source], [output], name=f"{output}:Cast", doc_string=DERIVED, to=TensorProto.FLOAT
    )
