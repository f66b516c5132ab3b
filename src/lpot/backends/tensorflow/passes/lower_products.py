"""Write products of an activation of any rank with a constant matrix as MatMul between Reshapes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import is_float32
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import ORIGIN
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    make_node,
)

ANY = "..."  # whatever axes come first
BATCHED = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")


def lower_products(net: Net) -> Net:
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for name in net.order:
        node = net.nodes[name]
        if node.op not in (*BATCHED, "Einsum") or has_control(node) or name in net.in_loop:
            continue
        product = _product(net, node)
        if product is None:
            continue
        for made in _lowered(node, product, _result(net, node, product, name_for), name_for):
            changes[made.name] = made
    return net.changed(changes).pruned()


class Product(NamedTuple):
    """The constant as a matrix, how many last axes of the activation it takes, what it gives."""

    matrix: np.ndarray
    axes: int
    sizes: tuple[int, ...]


def _product(net: Net, node: NodeDef) -> Product | None:
    inputs = data_inputs(node)
    weight = net.constant(inputs[1]) if len(inputs) == 2 else None
    if weight is None or weight.dtype != np.float32 or net.is_constant(inputs[0]):
        return None
    if node.op == "Einsum":
        return _einsum_product(node, weight)
    if not is_float32(node) and node.op != "BatchMatMulV3":
        return None
    if weight.ndim != 2 or ("adj_x" in node.attr and node.attr["adj_x"].b):
        return None
    matrix = weight.T if "adj_y" in node.attr and node.attr["adj_y"].b else weight
    return Product(matrix, 1, matrix.shape[1:])


def _einsum_product(node: NodeDef, weight: np.ndarray) -> Product | None:
    """`…k,kn->…n` where k and n may be several letters: trailing ones here, leading ones there."""
    equation = node.attr["equation"].s.decode().replace(" ", "")
    left, _, right = equation.partition("->")
    first, _, second = left.partition(",")
    if first.startswith(ANY) and right.startswith(ANY):
        first, right = first.removeprefix(ANY), right.removeprefix(ANY)
    summed = [letter for letter in second if letter in first]
    kept = [letter for letter in second if letter not in first]
    count = len(summed)
    if not count or not kept or "." in first + second + right:
        return None
    free = first[: len(first) - count]
    fits = (
        first[len(free) :] == second[:count] == "".join(summed)
        and right == free + "".join(kept)
        and len(set(first)) == len(first)
    )
    if not fits:
        return None
    rows = int(np.prod(weight.shape[:count]))
    return Product(weight.reshape(rows, -1), count, weight.shape[count:])


def _result(net: Net, node: NodeDef, product: Product, name_for: Namer) -> list[NodeDef]:
    """Nodes that give the shape of the product, the last of them all of it."""
    stem, shape = node.name, net.shape(node.name)
    if shape is not None and sum(size is None for size in shape) <= 1:
        sizes = np.array([-1 if size is None else size for size in shape], np.int32)
        return [make_const(name_for(f"{stem}/shape"), sizes)]
    # Several sizes are free, or even their number: they are those of what comes in.
    values = {"from": [0], "to": [-product.axes], "step": [1], "sizes": product.sizes, "axis": 0}
    consts = {
        key: make_const(name_for(f"{stem}/shape/{key}"), np.array(value, np.int32))
        for key, value in values.items()
    }
    name = {key: const.name for key, const in consts.items()}
    whole = make_node(
        "Shape",
        name_for(f"{stem}/shape/given"),
        [data_inputs(node)[0]],
        T=tf.float32,
        out_type=tf.int32,
    )
    front = make_node(
        "StridedSlice",
        name_for(f"{stem}/shape/front"),
        [whole.name, name["from"], name["to"], name["step"]],
        T=tf.int32,
        Index=tf.int32,
        begin_mask=0,
        end_mask=0,
        ellipsis_mask=0,
        new_axis_mask=0,
        shrink_axis_mask=0,
    )
    joined = make_node(
        "ConcatV2",
        name_for(f"{stem}/shape"),
        [front.name, name["sizes"], name["axis"]],
        T=tf.int32,
        Tidx=tf.int32,
        N=2,
    )
    return [*consts.values(), whole, front, joined]


def _lowered(
    node: NodeDef, product: Product, shape: list[NodeDef], name_for: Namer
) -> list[NodeDef]:
    stem, full = node.name, shape[-1]
    sizes = np.array([-1, product.matrix.shape[0]], np.int32)
    flat = make_const(name_for(f"{stem}/flat"), sizes)
    weight = make_const(name_for(f"{stem}/matrix"), product.matrix)
    rows = make_node(
        "Reshape",
        name_for(f"{stem}/rows"),
        [data_inputs(node)[0], flat.name],
        T=tf.float32,
        Tshape=tf.int32,
    )
    made = make_node("MatMul", name_for(f"{stem}/product"), [rows.name, weight.name], T=tf.float32)
    made.attr[ORIGIN].s = f"{node.name}|{node.op}".encode()
    back = make_node("Reshape", stem, [made.name, full.name], T=tf.float32, Tshape=tf.int32)
    return [flat, *shape, weight, rows, made, back]
