"""Give Reshapes a constant shape where all but one size is known: what computed it falls away."""

from __future__ import annotations

import math

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    with_inputs,
)

ROUNDS = 4  # each settled shape may make those behind it known


def settle_reshapes(net: Net) -> Net:
    for _ in range(ROUNDS):
        changes = _settled(net)
        if not changes:
            break
        net = net.changed(changes).pruned()
    return net


def _settled(net: Net) -> dict[str, NodeDef]:
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for name in net.order:
        node = net.nodes[name]
        if node.op != "Reshape" or has_control(node) or name in net.in_loop:
            continue
        if net.is_constant(data_inputs(node)[1]):
            continue
        shape = known_sizes(net, data_inputs(node)[1]) or net.shape(name)
        # With a size of 0 among the known ones the unknown one could not be worked out.
        if shape is None or sum(size in (None, -1) for size in shape) > 1 or 0 in shape:
            continue
        sizes = np.array([-1 if size is None else size for size in shape], np.int32)
        const = make_const(name_for(f"{name}/settled"), sizes)
        changes[const.name] = const
        fresh = with_inputs(node, [node.input[0], const.name])
        fresh.attr["Tshape"].type = tf.int32.as_datatype_enum
        changes[name] = fresh
    return changes


# -- Vectors of sizes computed in the graph, as far as they are known without running it.


Sizes = tuple[int | None, ...]
DEEPEST = 12


def known_sizes(net: Net, tensor: str, depth: int = 0) -> Sizes | None:
    """The elements of a vector (or scalar) of sizes; None stands for one, or for all, not known."""
    value = net.constant(tensor)
    if value is not None:
        return tuple(int(item) for item in value.reshape(-1)) if value.dtype.kind in "iu" else None
    node = net.producer(tensor)
    if node is None or depth > DEEPEST:
        return None
    if node.op == "Shape":
        return net.shape(data_inputs(node)[0])
    if node.op in ("Identity", "Cast"):
        return known_sizes(net, data_inputs(node)[0], depth + 1)
    if node.op == "GatherV2":
        return _gathered(net, node, depth)
    if node.op == "StridedSlice":
        return _sliced(net, node, depth)
    if node.op == "Prod":
        sizes = known_sizes(net, data_inputs(node)[0], depth + 1)
        return None if sizes is None else (_product(sizes),)
    if node.op in ("Pack", "ConcatV2"):
        inputs = data_inputs(node)
        parts = [
            known_sizes(net, n, depth + 1) for n in inputs[: None if node.op == "Pack" else -1]
        ]
        if node.op == "Pack":
            parts = [(None,) if part is None else part for part in parts]
        return None if None in parts else tuple(size for part in parts for size in part or ())
    if node.op == "Mul":
        factors = [known_sizes(net, name, depth + 1) for name in data_inputs(node)]
        if any(factor is None or len(factor) != 1 for factor in factors):
            return None
        return (_product(tuple(factor[0] for factor in factors if factor)),)
    return None


def _product(sizes: Sizes) -> int | None:
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _gathered(net: Net, node: NodeDef, depth: int) -> Sizes | None:
    values, indices = data_inputs(node)[:2]
    sizes, chosen = known_sizes(net, values, depth + 1), net.constant(indices)
    if sizes is None or chosen is None:
        return None
    return tuple(sizes[int(index)] for index in chosen.reshape(-1))


def _sliced(net: Net, node: NodeDef, depth: int) -> Sizes | None:
    """One element or a plain run of elements."""
    values, *ends = data_inputs(node)
    sizes = known_sizes(net, values, depth + 1)
    begin, end, step = (net.constant(name) for name in ends)
    if sizes is None or begin is None or end is None or step is None or begin.size != 1:
        return None

    def mask(name: str) -> bool:
        return bool(node.attr[name].i) if name in node.attr else False

    if mask("ellipsis_mask") or mask("new_axis_mask"):
        return None
    if mask("shrink_axis_mask"):
        return (sizes[int(begin[0])],)
    first = None if mask("begin_mask") else int(begin[0])
    last = None if mask("end_mask") else int(end[0])
    return sizes[slice(first, last, int(step[0]))]
