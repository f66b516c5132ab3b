"""Keep weights as float16 in the file: half its size. TensorFlow widens them when it opens it."""

from __future__ import annotations

from collections.abc import Iterable

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Layer
from lpot.backends.tensorflow.structure.nodes import Namer, make_const, make_node, tensor_name
from lpot.core.numerics.rounding import halved

LOOKUPS = ("Gather", "GatherV2")


def store_halves(
    net: Net, layers: Iterable[Layer], wide: Iterable[Layer]
) -> tuple[Net, list[Layer]]:
    """The weights of these layers, and which of the layers have theirs so; matrices that belong to
    no layer (lookup tables) are stored with them. Those of `wide` layers stay as they are."""
    fixed = {tensor_name(layer.weight) for layer in wide} | net.keep | net.in_loop
    name_for = Namer(net.nodes)
    changes: dict[str, NodeDef] = {}
    for name, node in net.nodes.items():
        if node.op != "Const" or name in fixed or not _is_matrix(node):
            continue
        values = halved(net.constant(name))
        if values is None:
            continue
        half = make_const(name_for(f"{name}/fp16"), values)
        half.input.extend(node.input)  # what it waits for
        changes[half.name] = half
        lookups = _lookups(net, name)
        for lookup in lookups:  # rows are looked up first: a whole table would be widened each time
            changes |= _narrow(lookup, half.name, name_for(f"{lookup.name}/fp16"))
        if not lookups:
            changes[name] = _widened(name, half.name)
    return net.changed(changes).pruned(), [
        one for one in layers if tensor_name(one.weight) in changes
    ]


def _lookups(net: Net, table: str) -> list[NodeDef]:
    """The ops that read a constant, if all of them take rows from it."""
    users = net.users.get(table, [])
    named = table in net.pinned or not all(
        user.op in LOOKUPS and tensor_name(user.input[0]) == table and user.name not in net.in_loop
        for user in users
    )
    return [] if named else users


def _narrow(lookup: NodeDef, table: str, name: str) -> dict[str, NodeDef]:
    made = NodeDef()
    made.CopyFrom(lookup)
    made.name, made.input[0] = name, table
    made.attr["Tparams"].type = tf.float16.as_datatype_enum
    return {name: made, lookup.name: _widened(lookup.name, name)}


def _widened(name: str, half: str) -> NodeDef:
    return make_node("Cast", name, [half], SrcT=tf.float16, DstT=tf.float32)


def _is_matrix(node: NodeDef) -> bool:
    shape = node.attr["value"].tensor.tensor_shape.dim
    return node.attr["dtype"].type == tf.float32.as_datatype_enum and len(shape) > 1
