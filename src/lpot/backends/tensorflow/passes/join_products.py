"""Make one INT8 product of those that read the same rows for attention: query, key and value.

The kernel reaches its speed on wide weights only, and one Transpose hands out the parts without
copying them again. Sums of integers do not depend on their neighbours: every value stays the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    make_node,
    tensor_name,
    with_inputs,
)

PRODUCT = "_QuantizedMatMul"
FUSED = [b"BiasAdd", b"Dequantize"]  # floats out, nothing that differs by product


@dataclass(frozen=True, eq=False)
class Head:
    """A product whose columns are heads: its rows are laid out by `sizes` and turned by `order`."""

    product: NodeDef
    front: str | tuple[int, ...]  # batch and positions: the tensor that tells them where free
    sizes: tuple[int, ...]  # heads, width of a head
    order: tuple[int, ...]
    out: str  # the Transpose that all readers read


def join_products(net: Net) -> Net:
    name_for = Namer(net.nodes)
    changes: dict[str, NodeDef] = {}
    renamed: dict[str, str] = {}
    for heads in _groups(net):
        made, parts = _joined(net, heads, name_for)
        changes |= {node.name: node for node in made}
        renamed |= dict(zip((head.out for head in heads), parts, strict=True))
    return net.changed(changes).rewired(renamed).pruned() if changes else net


def _groups(net: Net) -> Iterator[list[Head]]:
    """Heads that differ in their weights alone."""
    found: dict[object, list[Head]] = {}
    for name in net.order:
        head = _head(net, net.nodes[name])
        if head is None:
            continue
        x, _, _, low, high, *_ = data_inputs(head.product)
        attributes = tuple(
            (key, head.product.attr[key].SerializeToString(deterministic=True))
            for key in sorted(head.product.attr)
        )
        alike = (x, low, high, head.front, head.sizes, head.order, attributes)
        found.setdefault(alike, []).append(head)
    return (heads for heads in found.values() if len(heads) > 1)


def _head(net: Net, node: NodeDef) -> Head | None:
    if node.op != PRODUCT or list(node.attr["fused_ops"].list.s) != FUSED or has_control(node):
        return None
    reshape = net.only_user(node.name)
    if reshape is None or reshape.op != "Reshape" or has_control(reshape):
        return None
    turn = net.only_user(reshape.name)
    if turn is None or turn.op != "Transpose" or has_control(turn) or turn.name in net.pinned:
        return None
    laid_out = _layout(net, data_inputs(reshape)[1])
    order, bias = net.constant(data_inputs(turn)[1]), net.constant(data_inputs(node)[2])
    if laid_out is None or order is None or bias is None:
        return None
    front, sizes = laid_out
    if sizes[0] * sizes[1] != bias.size or min(sizes) < 1:
        return None
    return Head(node, front, sizes, tuple(map(int, order)), turn.name)


def _layout(net: Net, shape: str) -> tuple[str | tuple[int, ...], tuple[int, ...]] | None:
    """Batch and positions, as numbers or the tensor that gives both; heads and their width."""
    sizes = net.constant(shape)
    if sizes is not None:
        front, back = tuple(map(int, sizes[:2])), tuple(map(int, sizes[2:]))
        return (front, back) if len(sizes) == 4 else None
    node = net.producer(shape)
    if node is None or node.op != "ConcatV2" or has_control(node) or len(node.input) != 3:
        return None
    given, last, _ = data_inputs(node)
    sizes = net.constant(last)
    if sizes is None or len(sizes) != 2 or net.shape(given) != (2,):
        return None
    return given, tuple(map(int, sizes))


def _joined(net: Net, heads: list[Head], name_for: Namer) -> tuple[list[NodeDef], list[str]]:
    """The nodes in place of so many products, and the tensor that each one's readers read."""
    first = heads[0]
    name = first.product.name
    columns = [data_inputs(head.product) for head in heads]
    x, _, _, low, high, *_ = columns[0]
    # Named after what they come from: a profile finds the op by its weight.
    weight, bias, least, most = (
        make_const(name_for(columns[0][at]), _beside(net, columns, at, axis), dtype)
        for at, axis, dtype in ((1, 1, tf.qint8), (2, 0, None), (5, 0, None), (6, 0, None))
    )
    inputs = [x, weight.name, bias.name, low, high, least.name, most.name]
    product = with_inputs(first.product, inputs)
    product.name = name_for(f"{name}/joined")
    sizes = _joined_sizes(f"{name}/joined/sizes", first.front, (len(heads), *first.sizes), name_for)
    turned = [2, *(axis + (axis > 1) for axis in first.order)]
    order = make_const(name_for(f"{name}/joined/order"), np.array(turned, np.int32))

    def step(op: str, part: str, inputs: list[str], **attrs: Any) -> NodeDef:
        return make_node(op, name_for(f"{name}/joined/{part}"), inputs, T=tf.float32, **attrs)

    rows = step("Reshape", "rows", [product.name, sizes[-1].name], Tshape=tf.int32)
    turn = step("Transpose", "turned", [rows.name, order.name], Tperm=tf.int32)
    parts = step("Unpack", "parts", [turn.name], num=len(heads), axis=0)
    nodes = [weight, bias, least, most, product, *sizes, order, rows, turn, parts]
    return nodes, [tensor_name(f"{parts.name}:{at}") for at in range(len(heads))]


def _joined_sizes(
    wish: str, front: str | tuple[int, ...], back: tuple[int, ...], name_for: Namer
) -> list[NodeDef]:
    """Nodes that lay out the rows of all products; the last gives the sizes."""
    if not isinstance(front, str):
        return [make_const(name_for(wish), np.array([*front, *back], np.int32))]
    known = make_const(name_for(f"{wish}/known"), np.array(back, np.int32))
    axis = make_const(name_for(f"{wish}/axis"), np.int32(0))
    inputs = [front, known.name, axis.name]
    joined = make_node("ConcatV2", name_for(wish), inputs, T=tf.int32, Tidx=tf.int32, N=2)
    return [known, axis, joined]


def _beside(net: Net, columns: list[list[str]], at: int, axis: int) -> np.ndarray:
    """One operand of all products; a range that is one number counts for every column."""
    values = []
    for inputs in columns:
        value = net.constant(inputs[at])
        bias = net.constant(inputs[2])
        assert value is not None and bias is not None
        values.append(np.broadcast_to(value, bias.shape) if value.ndim == 0 else value)
    return np.concatenate(values, axis)
