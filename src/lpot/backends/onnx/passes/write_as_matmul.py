"""Write products with a constant matrix as MatMul with the constant on the right.

Einsum is one where it sums over the last letters of its input; MatMul with its constant on the left
is one of the transposed input.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph, attribute


def write_as_matmul(graph: Graph) -> Graph:
    weights = dict(graph.weights)
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type == "Einsum":
            nodes += _from_einsum(graph, node, weights) or [node]
        elif node.op_type == "MatMul" and _is_left(graph, node):
            nodes += _turned(graph, node, weights)
        else:
            nodes.append(node)
    same = all(new is old for new, old in zip(nodes, graph.nodes, strict=False))
    return graph if same and len(nodes) == len(graph.nodes) else graph.replaced(nodes, weights)


def _from_einsum(
    graph: Graph, node: NodeProto, weights: dict[str, np.ndarray]
) -> list[NodeProto] | None:
    """…k,kn->…n with any number of letters for n; None for other equations."""
    weight = graph.weights.get(node.input[-1])
    equation = attribute(node, "equation", b"")
    text = equation.decode().replace(" ", "") if isinstance(equation, bytes) else ""
    sides, arrow, made = text.partition("->")
    terms = sides.split(",")
    if weight is None or not arrow or len(terms) != 2 or "." in text or weight.dtype != np.float32:
        return None
    left, right = terms
    summed = [letter for letter in left if letter in right and letter not in made]
    free = [letter for letter in right if letter not in summed]
    rows = left[: len(left) - 1]
    plain = len(set(left)) == len(left) and len(set(right)) == len(right)
    if not plain or len(summed) != 1 or left[-1] != summed[0] or made != rows + "".join(free):
        return None
    if not free or not rows or len(right) != weight.ndim:
        return None
    turned = weight.transpose([right.index(letter) for letter in (summed[0], *free)])
    matrix = graph.fresh(f"{node.name}/matrix")
    weights[matrix] = np.ascontiguousarray(turned.reshape(turned.shape[0], -1))
    flat = graph.fresh(f"{node.output[0]}/flat") if len(free) > 1 else node.output[0]
    found = [helper.make_node("MatMul", [node.input[0], matrix], [flat], name=node.name)]
    if len(free) > 1:
        shape = graph.fresh(f"{flat}/shape")
        weights[shape] = np.array([0] * len(rows) + list(turned.shape[1:]))
        found.append(_derived("Reshape", [flat, shape], node.output[0]))
    return found


def _is_left(graph: Graph, node: NodeProto) -> bool:
    weight = graph.weights.get(node.input[0])
    shape = graph.shapes.get(node.input[1])
    return (
        weight is not None
        and weight.ndim == 2
        and weight.dtype == np.float32
        and not graph.is_constant(node.input[1])
        and shape is not None
        and len(shape) >= 2
    )


def _turned(graph: Graph, node: NodeProto, weights: dict[str, np.ndarray]) -> Iterator[NodeProto]:
    rank = len(graph.shapes[node.input[1]])
    order = [*range(rank - 2), rank - 1, rank - 2]
    matrix = graph.fresh(f"{node.name}/matrix")
    weights[matrix] = np.ascontiguousarray(graph.weights[node.input[0]].T)
    given, made = (graph.fresh(f"{node.output[0]}/{word}") for word in ("turned", "product"))
    yield _derived("Transpose", [node.input[1]], given, perm=order)
    yield helper.make_node("MatMul", [given, matrix], [made], name=node.name)
    yield _derived("Transpose", [made], node.output[0], perm=order)


def _derived(kind: str, inputs: list[str], output: str, **attributes: object) -> NodeProto:
    name = f"{output}:{kind}"
    return helper.make_node(kind, inputs, [output], name=name, doc_string=DERIVED, **attributes)
