"""Move a Reshape behind a MatMul past its bias, activation and residual, so that they fuse."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.activations import GELUS, match_activation
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import MATMUL_ACTIVATIONS
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    make_node,
    tensor_name,
    with_inputs,
)

SUMS = ("Add", "AddV2", "AddN")


def sink_reshapes(net: Net) -> Net:
    """One product after the other; each Reshape goes down as far as it can."""
    shapes = net  # names go on standing for the same values, so shapes need no second look
    for name in [name for name in net.order if net.nodes[name].op == "MatMul"]:
        if name in net.in_loop:
            continue
        width = _width(net, name)
        while width is not None and (sunk := _sink(net, shapes, name, width)) is not None:
            net, name = sunk
    return net


def _width(net: Net, product: str) -> int | None:
    weight = net.constant(data_inputs(net.nodes[product])[1])
    if weight is None:
        return None
    transposed = (
        "transpose_b" in net.nodes[product].attr and net.nodes[product].attr["transpose_b"].b
    )
    return int(weight.shape[0 if transposed else 1])


def _sink(net: Net, shapes: Net, name: str, width: int) -> tuple[Net, str] | None:
    """The graph with the Reshape behind `name` one step further down, and what is before it."""
    reshape = net.only_user(name)
    if reshape is None or has_control(reshape):
        return None
    if reshape.op != "Reshape":
        # A bias or activation in place already: the Reshape may stand behind it.
        plain = reshape.op in ("BiasAdd", *MATMUL_ACTIVATIONS)
        return (net, reshape.name) if plain else None
    if data_inputs(reshape)[0] != name:
        return None
    user = net.only_user(reshape.name)
    if user is None:
        return _sink_past_gelu(net, name, reshape)
    if has_control(user):
        return None
    if user.op in MATMUL_ACTIVATIONS:
        return _swapped(net, reshape, user, [name])
    operands = data_inputs(user)
    if user.op == "Mul" and (factor := _scalar(net, operands, reshape.name)) is not None:
        return _swapped(net, reshape, user, [name, factor])
    if len(operands) != 2 or user.op not in ("BiasAdd", *SUMS):
        return None
    other = operands[1] if operands[0] == reshape.name else operands[0]
    value = net.constant(other)
    if value is not None:
        return _sink_past_bias(net, name, reshape, user, value, width, shapes.shape(reshape.name))
    shape = shapes.shape(reshape.name)
    if shape is None or shape != shapes.shape(other) or shape[-1] != width or None in shape[1:]:
        return None
    return _sink_past_sum(net, name, reshape, user, other, width)


def _scalar(net: Net, operands: list[str], main: str) -> str | None:
    """The constant that multiplies everything alike."""
    others = [name for name in operands if name != main]
    value = net.constant(others[0]) if len(others) == 1 else None
    return others[0] if value is not None and value.ndim == 0 else None


def _swapped(net: Net, reshape: NodeDef, user: NodeDef, inputs: list[str]) -> tuple[Net, str]:
    """The two nodes change places and names, so that the last name stands for the same values."""
    upper = with_inputs(user, inputs)
    upper.name = reshape.name
    lower = with_inputs(reshape, [reshape.name, data_inputs(reshape)[1]])
    lower.name = user.name
    return net.changed({upper.name: upper, lower.name: lower}), upper.name


def _sink_past_bias(
    net: Net,
    name: str,
    reshape: NodeDef,
    user: NodeDef,
    value: np.ndarray,
    width: int,
    shape: tuple[int | None, ...] | None,
) -> tuple[Net, str] | None:
    sizes = value.shape
    while len(sizes) > 1 and sizes[0] == 1:
        sizes = sizes[1:]
    if shape is None or len(value.shape) > len(shape) or value.dtype != np.float32:
        return None
    # One value per column of the product, laid out as the Reshape lays the columns out.
    if value.size != width or tuple(shape[len(shape) - len(sizes) :]) != sizes:
        return None
    const = make_const(Namer(net.nodes)(f"{user.name}/flat"), value.reshape(-1))
    bias = make_node("BiasAdd", reshape.name, [name, const.name], T=tf.float32)
    lower = with_inputs(reshape, [reshape.name, data_inputs(reshape)[1]])
    lower.name = user.name
    changes = {const.name: const, bias.name: bias, lower.name: lower}
    return net.changed(changes), bias.name


def _sink_past_sum(
    net: Net, name: str, reshape: NodeDef, user: NodeDef, other: str, width: int
) -> tuple[Net, str]:
    name_for = Namer(net.nodes)
    flat = make_const(name_for(f"{user.name}/flat"), np.array([-1, width], np.int32))
    rows = make_node(
        "Reshape", name_for(f"{user.name}/rows"), [other, flat.name], T=tf.float32, Tshape=tf.int32
    )
    total = make_node("AddV2", reshape.name, [name, rows.name], T=tf.float32)
    lower = with_inputs(reshape, [reshape.name, data_inputs(reshape)[1]])
    lower.name = user.name
    return net.changed({node.name: node for node in (flat, rows, total, lower)}), total.name


def _sink_past_gelu(net: Net, name: str, reshape: NodeDef) -> tuple[Net, str] | None:
    found = match_activation(net, reshape.name, GELUS)
    if found is None:
        return None
    last = net.nodes[found[1]]
    name_for = Namer(net.nodes)
    upper = with_inputs(last, [_moved(source, reshape.name, name) for source in last.input])
    upper.name = name_for(f"{last.name}/flat")
    lower = with_inputs(reshape, [upper.name, data_inputs(reshape)[1]])
    lower.name = last.name
    changes = {upper.name: upper, lower.name: lower}
    for user in net.users[reshape.name]:
        if user.name != last.name:
            changes[user.name] = with_inputs(
                user, [_moved(source, reshape.name, name) for source in user.input]
            )
    return net.changed(changes, {reshape.name}), upper.name


def _moved(source: str, before: str, after: str) -> str:
    return after if tensor_name(source) == before else source
