"""Compute once what depends on constants alone."""

from __future__ import annotations

import numpy as np
from tensorflow.python.framework import op_def_registry

from lpot.backends.tensorflow.quick import QuickSession
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import CONTROL_FLOW, Net
from lpot.backends.tensorflow.structure.nodes import data_inputs, full_name, has_control, make_const

# A folded value may be bigger than what it is made of (Tile, Fill), but not without bound.
LIMIT = 1 << 24
FOLDED_TYPES = {tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.bool}


def fold_constants(net: Net) -> Net:
    foldable = _foldable(net)
    edge = [name for name in net.order if name in foldable and _is_seen(net, name, foldable)]
    if not edge:
        return net
    with QuickSession(net.cut(edge)) as session:
        # A node of an unfoldable type may only be passed through on the way to another.
        edge = [name for name in edge if _fits(session.graph.get_tensor_by_name(full_name(name)))]
        values = session.run([full_name(name) for name in edge])
    changes = {
        name: make_const(name, value)
        for name, value in zip(edge, map(np.asarray, values), strict=True)
        if value.nbytes <= LIMIT or net.nodes[name].op == "Cast"  # of weights stored as float16
    }
    return net.changed(changes).pruned()


def _foldable(net: Net) -> set[str]:
    """Stateless nodes, outside of branches and loops, whose inputs are all constant."""
    found: set[str] = set()
    for name in net.order:
        node = net.nodes[name]
        sources = data_inputs(node)
        if not sources or has_control(node) or name in net.in_loop or name in net.keep:
            continue
        if _is_bound(node):
            continue
        if all(_is_constant(net, source, found) for source in sources):
            found.add(name)
    return found


def _is_constant(net: Net, tensor: str, found: set[str]) -> bool:
    before = net.producer(tensor)
    if before is None:
        return False
    # A Const that waits for a branch must go on waiting: its readers take their life from it.
    return before.name in found or (before.op == "Const" and not has_control(before))


def _is_bound(node: NodeDef) -> bool:
    """Does something besides its inputs decide what the node gives?"""
    if node.op in CONTROL_FLOW:
        return True
    op_def = op_def_registry.get(node.op)
    if op_def is None or op_def.is_stateful or len(op_def.output_arg) != 1:
        return True
    return any(value.HasField("func") for value in node.attr.values())


def _is_seen(net: Net, name: str, foldable: set[str]) -> bool:
    return any(heir not in foldable for heir in net.heirs.get(name, ()))


def _fits(tensor: tf.Tensor) -> bool:
    return tensor.dtype in FOLDED_TYPES
