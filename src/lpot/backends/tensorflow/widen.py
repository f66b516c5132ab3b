"""Models of 16-bit floats (Keras' mixed precision) computed in float32: what INT8 starts from."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.nodes import Namer, full_name, make_node, node_name, value_of
from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf

HALVES = (tf.float16.as_datatype_enum, tf.bfloat16.as_datatype_enum)
WIDE = tf.float32.as_datatype_enum
PLACEHOLDERS = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")


def narrow_ops(graph_def: GraphDef) -> dict[str, int]:
    """How many ops compute in 16-bit floats, by the name of the type."""
    found: dict[str, int] = {}
    for node in graph_def.node:
        kind = node.attr["T"].type if "T" in node.attr else 0
        if kind in HALVES:
            name = tf.as_dtype(kind).name
            found[name] = found.get(name, 0) + 1
    return found


def widen(graph_def: GraphDef, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> GraphDef:
    """The same graph in float32; inputs and outputs keep their names and types."""
    fresh = Namer(node.name for node in graph_def.node)
    made = GraphDef()
    made.library.CopyFrom(graph_def.library)
    made.versions.CopyFrom(graph_def.versions)
    ends = {node_name(name) for name in outputs}
    fed: dict[str, str] = {}
    for node in graph_def.node:
        if _is_fed(node, inputs) and node.attr["dtype"].type in HALVES:
            cast = _cast(fresh(f"{node.name}/float32"), node.name, node.attr["dtype"].type, WIDE)
            fed[node.name] = cast.name
            made.node.extend([node, cast])
    for node in graph_def.node:
        if node.name in fed:
            continue
        wide, kind = _widened(node), _kind(node)
        for index, source in enumerate(wide.input):
            if source.partition(":")[0] in fed and source.endswith(":0") | (":" not in source):
                wide.input[index] = fed[node_name(source)]
        if node.name in ends and kind in HALVES:
            wide.name = fresh(f"{node.name}/float32")
            made.node.append(_cast(node.name, wide.name, WIDE, kind))
        made.node.append(wide)
    return made


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
