"""Write a float16 model in float32, the precision that INT8 kernels start from and end in.

The model's inputs and outputs keep their types.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from lpot.backends.onnx.graph import DERIVED, Graph, has_subgraph
from lpot.backends.onnx.load import infer

HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT


def widen_halves(graph: Graph) -> Graph:
    if not any(array.dtype == np.float16 for array in graph.weights.values()):
        return graph
    if any(has_subgraph(node) or node.domain not in ("", "ai.onnx") for node in graph.nodes):
        return graph  # what these do with halves is not known
    weights = {
        name: array.astype(np.float32) if array.dtype == np.float16 else array
        for name, array in graph.weights.items()
    }
    inputs, outputs = _halves(graph, graph.inputs), _halves(graph, graph.outputs)
    renamed = {name: graph.fresh(f"{name}/wide") for name in (*inputs, *outputs)}
    nodes = [_cast(name, renamed[name], FLOAT) for name in inputs]
    for node in graph.nodes:
        twin = NodeProto()
        twin.CopyFrom(node)
        twin.input[:] = [renamed.get(name, name) for name in node.input]
        twin.output[:] = [renamed.get(name, name) for name in node.output]
        _widen(twin)
        nodes.append(twin)
    nodes += [_cast(renamed[name], name, HALF) for name in outputs]
    header = ModelProto()
    header.CopyFrom(graph.header)
    bare = Graph(header, tuple(nodes), weights, graph.opaque)
    types, shapes = infer(bare)
    return Graph(header, tuple(nodes), weights, graph.opaque, types, shapes)


def _halves(graph: Graph, names: tuple[str, ...]) -> list[str]:
    made = set(graph.producers) | set(graph.inputs)
    return [name for name in names if graph.types.get(name) == HALF and name in made]


def _cast(source: str, output: str, kind: int) -> NodeProto:
    name = f"{output}:Cast"
    return helper.make_node("Cast", [source], [output], name=name, doc_string=DERIVED, to=kind)


def _widen(node: NodeProto) -> None:
    """Types that stand in attributes."""
    for item in node.attribute:
        if item.name in ("to", "dtype") and item.i == HALF:
            item.i = FLOAT
        elif item.name == "value" and item.t.data_type == HALF:
            wide = numpy_helper.to_array(item.t).astype(np.float32)
            item.t.CopyFrom(numpy_helper.from_array(wide, item.t.name))
