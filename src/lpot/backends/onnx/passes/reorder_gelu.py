"""Write GELU in the order the runtime recognises, so that it is fused into one op.

Some exporters write x * (0.5 * (1 + erf(…))); the runtime looks for (x * (1 + erf(…))) * 0.5.
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph


def reorder_gelu(graph: Graph) -> Graph:
    changed: dict[str, NodeProto] = {}
    for erf in graph.nodes:
        if erf.op_type != "Erf":
            continue
        found = _match(graph, erf)
        if found is None:
            continue
        half, last, argument, shifted, factor = found
        first, second = NodeProto(), NodeProto()
        first.CopyFrom(half)
        second.CopyFrom(last)
        first.input[:] = [argument, shifted]
        second.input[:] = [half.output[0], factor]
        changed[half.name], changed[last.name] = first, second
    if not changed:
        return graph
    return graph.replaced([changed.get(node.name, node) for node in graph.nodes], graph.weights)


def _match(graph: Graph, erf: NodeProto) -> tuple[NodeProto, NodeProto, str, str, str] | None:
    shift = _only_user(graph, erf.output[0], "Add")
    half = _only_user(graph, shift.output[0], "Mul") if shift is not None else None
    last = _only_user(graph, half.output[0], "Mul") if half is not None else None
    if shift is None or half is None or last is None:
        return None
    factor = _other(half, shift.output[0])
    argument = _other(last, half.output[0])
    scalar = graph.weights.get(factor)
    divided = graph.producers.get(erf.input[0])
    right = (
        scalar is not None
        and scalar.size == 1
        and np.isclose(float(scalar.reshape(())), 0.5)
        and divided is not None
        and divided.input[0] == argument
    )
    return (half, last, argument, shift.output[0], factor) if right else None


def _only_user(graph: Graph, name: str, kind: str) -> NodeProto | None:
    users = graph.consumers.get(name, [])
    alone = len(users) == 1 and users[0].op_type == kind and name not in graph.outputs
    return users[0] if alone else None


def _other(node: NodeProto, name: str) -> str:
    return str(node.input[1] if node.input[0] == name else node.input[0])
