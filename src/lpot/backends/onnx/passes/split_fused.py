"""Take apart the fused ops that ONNX Runtime writes into optimised files: they hide weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph, attribute

FUSED = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
PLAIN = ("Relu", "Tanh", "Sigmoid")
# Attributes that belong to the activation, not to the op.
OF_ACTIVATION = ("activation", "activation_params", "activation_alpha", "activation_beta")


def split_fused(graph: Graph) -> Graph:
    weights = dict(graph.weights)
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.domain == "com.microsoft" and node.op_type in FUSED and _known(node):
            nodes += _split(graph, node, weights)
        else:
            nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else graph.replaced(nodes, weights)


def _known(node: NodeProto) -> bool:
    return _activation(node) in (*PLAIN, "LeakyRelu", "Clip")


def _activation(node: NodeProto) -> str:
    word = attribute(node, "activation", b"")
    return word.decode() if isinstance(word, bytes) else ""


def _split(graph: Graph, node: NodeProto, weights: dict[str, np.ndarray]) -> Iterator[NodeProto]:
    bare = NodeProto()
    bare.CopyFrom(node)
    bare.op_type, bare.domain = FUSED[node.op_type], ""
    kept = [item for item in node.attribute if item.name not in OF_ACTIVATION]
    del bare.attribute[:]
    bare.attribute.extend(kept)
    inner = graph.fresh(f"{node.output[0]}/before")
    bare.output[0] = inner
    del bare.input[3:]
    yield bare
    if len(node.input) > 3 and node.input[3]:  # a residual, added before the activation
        total = graph.fresh(f"{inner}/sum")
        yield _derived("Add", [inner, node.input[3]], total, f"{node.name}/Add")
        inner = total
    kind, inputs, extra = _activation(node), [inner], {}
    parameters = [float(value) for value in _parameters(node)]
    if kind == "LeakyRelu":
        extra = {"alpha": parameters[0] if parameters else 0.01}
    elif kind == "Clip":
        for word, value in zip(("least", "most"), parameters, strict=True):
            inputs.append(graph.fresh(f"{inner}/{word}"))
            weights[inputs[-1]] = np.array(value, np.float32)
    yield _derived(kind, inputs, node.output[0], f"{node.name}/{kind}", **extra)


def _derived(
    kind: str, inputs: list[str], output: str, name: str, **attributes: object
) -> NodeProto:
    return helper.make_node(kind, inputs, [output], name=name, doc_string=DERIVED, **attributes)


def _parameters(node: NodeProto) -> list[float]:
    listed = attribute(node, "activation_params")
    if isinstance(listed, list):
        return listed
    single = attribute(node, "activation_alpha")
    return [single] if isinstance(single, float) else []
