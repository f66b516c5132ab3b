"""Write an Einsum of two activations as a batched product between Transposes.

TensorFlow's Einsum moves its operands about more than it needs to: attention takes twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import is_float32
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    make_node,
)


@dataclass(frozen=True)
class Contraction:
    """Labels of `left · right → out`: shared by all, summed over, and of one side only."""

    batch: str
    summed: str
    first: str  # the axis of the left side only
    second: str

    @classmethod
    def of(cls, left: str, right: str, out: str) -> Contraction | None:
        """None unless it is a batched product of matrices."""
        batch = "".join(c for c in out if c in left and c in right)
        summed = "".join(c for c in left if c in right and c not in out)
        first = "".join(c for c in left if c not in right)
        second = "".join(c for c in right if c not in left)
        whole = all(len(set(side)) == len(side) for side in (left, right, out))
        single = len(summed) == len(first) == len(second) == 1 and batch
        seen = sorted(out) == sorted(batch + first + second)
        return cls(batch, summed, first, second) if whole and single and seen else None


def lower_contractions(net: Net) -> Net:
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for name in net.order:
        node = net.nodes[name]
        if node.op != "Einsum" or not is_float32(node) or len(data_inputs(node)) != 2:
            continue
        if has_control(node) or name in net.in_loop or any(map(net.is_constant, data_inputs(node))):
            continue
        for made in _lowered(node, name_for):
            changes[made.name] = made
    return net.changed(changes).pruned()


def _lowered(node: NodeDef, name_for: Namer) -> list[NodeDef]:
    equation = node.attr["equation"].s.decode().replace(" ", "")
    sides, _, out = equation.partition("->")
    left, _, right = sides.partition(",")
    x, y = data_inputs(node)
    found = Contraction.of(left, right, out)
    if found is None or "." in equation:
        return []
    if out.index(found.first) > out.index(found.second):  # as the result lies, if it can
        left, right, x, y = right, left, y, x
        found = Contraction(found.batch, found.summed, found.second, found.first)
    made: list[NodeDef] = []

    def transposed(tensor: str, labels: str, wanted: str, name: str) -> str:
        if labels == wanted:
            return tensor
        order = make_const(
            name_for(f"{name}/order"), np.array([labels.index(c) for c in wanted], np.int32)
        )
        moved = make_node("Transpose", name, [tensor, order.name], T=tf.float32, Tperm=tf.int32)
        made.extend((order, moved))
        return str(moved.name)

    def operand(tensor: str, labels: str, wanted: str, part: str) -> tuple[str, bool]:
        """Laid out as wanted, or with its matrices the other way round, which costs nothing."""
        turned = wanted[:-2] + wanted[-1] + wanted[-2]
        target = turned if labels == turned else wanted
        return transposed(tensor, labels, target, name_for(f"{node.name}/{part}")), target == turned

    one, turn_one = operand(x, left, found.batch + found.first + found.summed, "left")
    # The second operand keeps its matrices as they lie: the product reads them either way.
    rows_first = right.index(found.summed) < right.index(found.second)
    inner = found.summed + found.second if rows_first else found.second + found.summed
    two = transposed(y, right, found.batch + inner, name_for(f"{node.name}/right"))
    given = found.batch + found.first + found.second
    name = node.name if given == out else name_for(f"{node.name}/product")
    turns = {"adj_x": turn_one, "adj_y": not rows_first}
    made.append(make_node("BatchMatMulV2", name, [one, two], T=tf.float32, **turns))
    transposed(name, given, out, node.name)
    return made
