"""Take exporters' guards against rows without any key off the attention's probabilities.

`Where(IsNaN(p), 0, p)` runs over every pair of tokens, and hides from runtimes the attention that
they would fuse. A row of NaN makes a row of NaN in the product that follows: the guard does the
same behind it, on a fraction of the values. Where no row can be masked as a whole, it goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import Graph, attribute


@dataclass(frozen=True, eq=False)
class _Guard:
    test: NodeProto  # IsNaN
    choice: NodeProto  # Where
    soft: NodeProto
    product: NodeProto


def move_guards(graph: Graph) -> Graph:
    found = [one for node in graph.nodes if (one := _guard(graph, node)) is not None]
    if not found:
        return graph
    gone = {name for one in found for name in (one.test.name, one.choice.name)}
    behind = {one.product.name: one for one in found}
    bare = {one.soft.name: scores for one in found if (scores := _without_mask(graph, one.soft))}
    sums = [graph.producers[one.soft.input[0]] for one in found if one.soft.name in bare]
    gone |= {node.name for node in sums if len(graph.consumers[node.output[0]]) == 1}
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.name in behind:
            nodes += _product(graph, behind[node.name])
        elif node.name in bare:
            nodes.append(_reading(node, bare[node.name]))
        elif node.name not in gone:
            nodes.append(node)
    return graph.replaced(nodes, graph.weights)


def _guard(graph: Graph, node: NodeProto) -> _Guard | None:
    """With the product behind it, where nobody else reads what it stands between."""
    if node.op_type != "Where":
        return None
    test, soft = graph.producers.get(node.input[0]), graph.producers.get(node.input[2])
    zero = graph.weights.get(node.input[1])
    if test is None or test.op_type != "IsNaN" or test.input[0] != node.input[2]:
        return None
    if soft is None or soft.op_type != "Softmax":
        return None
    rank = len(graph.shapes.get(soft.output[0]) or ())
    if rank < 2 or attribute(soft, "axis", -1) not in (-1, rank - 1):
        return None
    inside = (node.output[0], test.output[0], soft.output[0])
    readers = [len(graph.consumers.get(name, ())) for name in inside]
    if zero is None or zero.size != 1 or zero.any() or readers != [1, 1, 2]:
        return None
    product = graph.consumers[node.output[0]][0]
    first = product.op_type == "MatMul" and product.input[0] == node.output[0] != product.input[1]
    if not first or set(graph.outputs).intersection(inside):
        return None
    return _Guard(test, node, soft, product)


def _product(graph: Graph, one: _Guard) -> Iterator[NodeProto]:
    """The product on the bare probabilities, and the guard behind it where it is needed."""
    plain = _reading(one.product, one.soft.output[0])
    if _has_keys(graph, one.soft):
        yield plain
        return
    (output,) = plain.output
    plain.output[0] = graph.fresh(f"{output}/unguarded")
    test = graph.fresh(f"{output}/empty")
    yield plain
    yield helper.make_node("IsNaN", [plain.output[0]], [test], name=one.test.name)
    choice = [test, one.choice.input[1], plain.output[0]]
    yield helper.make_node("Where", choice, [output], name=one.choice.name)


def _reading(node: NodeProto, name: str) -> NodeProto:
    twin = NodeProto()
    twin.CopyFrom(node)
    twin.input[0] = name
    return twin


def _has_keys(graph: Graph, soft: NodeProto) -> bool:
    """Is there a key left for every row, whatever the inputs?"""
    before = graph.producers.get(soft.input[0])
    if before is None or before.op_type != "Add":
        return before is not None and before.op_type in ("MatMul", "Mul", "Div")
    mask = _mask(graph, before)
    return mask is not None and bool(np.isfinite(mask).any(-1).all())


def _mask(graph: Graph, sums: NodeProto) -> np.ndarray | None:
    """What is added to the scores, where that is known beforehand."""
    for name in reversed(sums.input):
        if name in graph.weights:
            return graph.weights[name]
        made = graph.producers.get(name)
        if made is not None and made.op_type == "Where":
            known = [graph.weights[part] for part in made.input if part in graph.weights]
            if len(known) == 3:
                return np.asarray(np.where(known[0], known[1], known[2]))
    return None


def _without_mask(graph: Graph, soft: NodeProto) -> str:
    """The scores alone, where what is added to them masks nothing; else empty."""
    before = graph.producers.get(soft.input[0])
    if before is None or before.op_type != "Add":
        return ""
    mask = _mask(graph, before)
    if mask is None or mask.any():
        return ""
    whole = graph.shapes.get(soft.output[0])
    scores = [name for name in before.input if graph.shapes.get(name) == whole]
    return scores[0] if len(scores) == 1 and before.output[0] not in graph.outputs else ""
