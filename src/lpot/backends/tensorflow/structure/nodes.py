"""Nodes and their names: reading them, and making fresh ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf


def tensor_name(name: str) -> str:
    """One spelling per tensor: output 0 is the node's name alone.

    >>> tensor_name("conv:0"), tensor_name("split:1")
    ('conv', 'split:1')
    """
    return name[:-2] if name.endswith(":0") else name


def node_name(tensor: str) -> str:
    """The node a tensor or control edge comes from."""
    return tensor.lstrip("^").partition(":")[0]


def full_name(tensor: str) -> str:
    """The spelling that sessions take."""
    return tensor if ":" in tensor else f"{tensor}:0"


class Namer:
    """Fresh node names that clash with none of a graph."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def __call__(self, wish: str) -> str:
        name, count = wish, 1
        while name in self._taken:
            name, count = f"{wish}_{count}", count + 1
        self._taken.add(name)
        return name


def value_of(node: NodeDef) -> np.ndarray:
    return np.asarray(tf.make_ndarray(node.attr["value"].tensor))


def make_const(name: str, value: Any, dtype: tf.DType | None = None) -> NodeDef:
    """A Const. `dtype` names the quantized type that integers stand for."""
    array = np.asarray(value)
    kind = dtype or tf.as_dtype(array.dtype)
    node = NodeDef(name=name, op="Const")
    node.attr["dtype"].type = kind.as_datatype_enum
    tensor = node.attr["value"].tensor
    tensor.dtype = kind.as_datatype_enum
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = np.ascontiguousarray(array).tobytes()
    return node


def make_node(op: str, name: str, inputs: Iterable[str], **attrs: Any) -> NodeDef:
    """A node. Attributes go by their Python type; lists may hold types, words or integers."""
    node = NodeDef(name=name, op=op)
    node.input.extend(inputs)
    for key, value in attrs.items():
        _set_attr(node.attr[key], value)
    return node


def _set_attr(attr: Any, value: Any) -> None:
    if isinstance(value, bool):
        attr.b = value
    elif isinstance(value, int):
        attr.i = value
    elif isinstance(value, float):
        attr.f = value
    elif isinstance(value, str):
        attr.s = value.encode()
    elif isinstance(value, tf.DType):
        attr.type = value.as_datatype_enum
    elif isinstance(value, list | tuple):
        attr.list.SetInParent()
        for item in value:
            if isinstance(item, tf.DType):
                attr.list.type.append(item.as_datatype_enum)
            elif isinstance(item, str):
                attr.list.s.append(item.encode())
            else:
                attr.list.i.append(int(item))
    else:
        attr.CopyFrom(value)


def with_inputs(node: NodeDef, inputs: Iterable[str]) -> NodeDef:
    fresh = NodeDef()
    fresh.CopyFrom(node)
    fresh.input[:] = list(inputs)
    return fresh


def data_inputs(node: NodeDef) -> list[str]:
    return [tensor_name(name) for name in node.input if not name.startswith("^")]


def has_control(node: NodeDef) -> bool:
    return any(name.startswith("^") for name in node.input)


def text_attr(node: NodeDef, name: str, default: str = "") -> str:
    return node.attr[name].s.decode() if name in node.attr else default
