"""Write products of an activation of any rank with a constant matrix as MatMul between Reshapes."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.affine import is_float32
from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.layers import ORIGIN
from lpot.backends.tensorflow.nodes import Namer, data_inputs, has_control, make_const, make_node
from lpot.backends.tensorflow.runtime import NodeDef, tf

BATCHED = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")


def lower_products(net: Net) -> Net:
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for name in net.order:
        node = net.nodes[name]
        if node.op not in (*BATCHED, "Einsum") or has_control(node) or name in net.in_loop:
            continue
        matrix = _matrix(net, node)
        shape = net.shape(name) if matrix is not None else None
        if matrix is None or shape is None or sum(size is None for size in shape) > 1:
            continue
        for made in _lowered(node, matrix, shape, name_for):
            changes[made.name] = made
    return net.changed(changes).pruned()


def _matrix(net: Net, node: NodeDef) -> np.ndarray | None:
    """The constant as a matrix that the flattened activation is multiplied with."""
    inputs = data_inputs(node)
    weight = net.constant(inputs[1]) if len(inputs) == 2 else None
    if weight is None or weight.dtype != np.float32 or net.is_constant(inputs[0]):
        return None
    if node.op == "Einsum":
        return _einsum_matrix(node, weight)
    if not is_float32(node) and node.op != "BatchMatMulV3":
        return None
    if weight.ndim != 2 or ("adj_x" in node.attr and node.attr["adj_x"].b):
        return None
    return weight.T if "adj_y" in node.attr and node.attr["adj_y"].b else weight


def _einsum_matrix(node: NodeDef, weight: np.ndarray) -> np.ndarray | None:
    """`…k,kn->…n` where k and n may be several letters: trailing ones here, leading ones there."""
    equation = node.attr["equation"].s.decode().replace(" ", "")
    left, _, right = equation.partition("->")
    first, _, second = left.partition(",")
    summed = [letter for letter in second if letter in first]
    kept = [letter for letter in second if letter not in first]
    count = len(summed)
    if not count or not kept or "." in equation:
        return None
    free = first[: len(first) - count]
    fits = (
        first[len(free) :] == second[:count] == "".join(summed)
        and right == free + "".join(kept)
        and len(set(first)) == len(first)
    )
    return weight.reshape(int(np.prod(weight.shape[:count])), -1) if fits else None


def _lowered(
    node: NodeDef, matrix: np.ndarray, shape: tuple[int | None, ...], name_for: Namer
) -> list[NodeDef]:
    stem = node.name
    flat = make_const(name_for(f"{stem}/flat"), np.array([-1, matrix.shape[0]], np.int32))
    full = make_const(
        name_for(f"{stem}/shape"), np.array([-1 if n is None else n for n in shape], np.int32)
    )
    weight = make_const(name_for(f"{stem}/matrix"), matrix)
    rows = make_node(
        "Reshape",
        name_for(f"{stem}/rows"),
        [data_inputs(node)[0], flat.name],
        T=tf.float32,
        Tshape=tf.int32,
    )
    product = make_node(
        "MatMul", name_for(f"{stem}/product"), [rows.name, weight.name], T=tf.float32
    )
    product.attr[ORIGIN].s = f"{node.name}|{node.op}".encode()
    back = make_node("Reshape", stem, [product.name, full.name], T=tf.float32, Tshape=tf.int32)
    return [flat, full, weight, rows, product, back]
