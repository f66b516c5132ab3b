"""Compute in float32 what a model of 16-bit floats (Keras' mixed precision) computes in those.

That is what INT8 starts from: the kernels take nothing else.
"""

from __future__ import annotations

import logging

import numpy as np

from lpot.backends.tensorflow.run import import_graph
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net, lightened
from lpot.backends.tensorflow.structure.layers import ORIGIN
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    full_name,
    make_node,
    tensor_name,
    value_of,
)
from lpot.core.errors import UnsupportedModel

logger = logging.getLogger(__name__)

HALVES = (tf.float16.as_datatype_enum, tf.bfloat16.as_datatype_enum)
WIDE = tf.float32.as_datatype_enum
PLACEHOLDERS = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")


def narrow_ops(net: Net) -> dict[str, int]:
    """How many ops compute in 16-bit floats, by the name of the type."""
    found: dict[str, int] = {}
    for node in net.nodes.values():
        kind = node.attr["T"].type if "T" in node.attr else 0
        if kind in HALVES:
            name = tf.as_dtype(kind).name
            found[name] = found.get(name, 0) + 1
    return found


def widen_halves(net: Net) -> Net:
    """The same graph in float32; inputs and outputs keep their names and types.

    One that TensorFlow would not take in float32 is left as it is.
    """
    if not narrow_ops(net):
        return net
    made = _widened_net(net)
    try:
        import_graph(lightened(made.header, made.nodes.values()))
    except UnsupportedModel as error:
        logger.info("16-bit floats are left: %s", error)
        return net
    return made


def _widened_net(net: Net) -> Net:
    fresh = Namer(net.nodes)
    made: dict[str, NodeDef] = {}
    fed: dict[str, str] = {}
    for name, node in net.nodes.items():
        if _is_fed(node, net.inputs) and node.attr["dtype"].type in HALVES:
            cast = _cast(fresh(f"{name}/float32"), name, node.attr["dtype"].type, WIDE)
            fed[name] = cast.name
            made |= {name: node, cast.name: cast}
    for name, node in net.nodes.items():
        if name in fed:
            continue
        wide, kind = _widened(node), _kind(node)
        wide.input[:] = [fed.get(tensor_name(source), source) for source in node.input]
        if name in net.keep and kind in HALVES:
            wide.name = fresh(f"{name}/float32")
            wide.attr[ORIGIN].s = f"{name}|{node.op}".encode()
            made[name] = _cast(name, wide.name, WIDE, kind)
        made[wide.name] = wide
    return net.changed(made)


def _is_fed(node: NodeDef, inputs: tuple[str, ...]) -> bool:
    return node.op in PLACEHOLDERS or full_name(node.name) in map(full_name, inputs)


def _kind(node: NodeDef) -> int:
    """The type of a node's first output, as far as its attributes tell."""
    for key in ("DstT", "dtype", "T"):
        if key in node.attr:
            return int(node.attr[key].type)
    return 0


def _widened(node: NodeDef) -> NodeDef:
    made = NodeDef()
    made.CopyFrom(node)
    for value in made.attr.values():
        if value.type in HALVES:
            value.type = WIDE
        for index, kind in enumerate(value.list.type):
            if kind in HALVES:
                value.list.type[index] = WIDE
    if node.op == "Const" and node.attr["dtype"].type in HALVES:
        array = np.asarray(value_of(node)).astype(np.float32)
        made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array))
    return made


def _cast(name: str, source: str, before: int, after: int) -> NodeDef:
    return make_node("Cast", name, [source], SrcT=tf.as_dtype(before), DstT=tf.as_dtype(after))
