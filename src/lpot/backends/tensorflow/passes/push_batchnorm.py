"""Fold a batch norm that stands before a convolution or MatMul into that op.

Keras models often put it after the activation, where it can't be folded backwards.
"""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import (
    BATCH_NORMS,
    COMPUTE,
    Affine,
    affine_of,
    is_nhwc,
    is_transposed,
    output_channels,
)
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    make_node,
    text_attr,
    with_inputs,
)

STEPS = (*BATCH_NORMS, "Mul", "Add", "AddV2", "Sub", "RealDiv")


def push_batchnorm(net: Net) -> Net:
    """Last ones first: what stands before a batch norm may follow it."""
    for name in reversed(net.order):
        if name in net.nodes and net.nodes[name].op in STEPS:
            net = _push(net, net.nodes[name])
    return net.pruned()


def _push(net: Net, step: NodeDef) -> Net:
    active = [name for name in data_inputs(step) if not net.is_constant(name)]
    user = net.only_user(step.name)
    if len(active) != 1 or user is None or step.name in net.in_loop:
        return net
    source, read, moved = active[0], step.name, None
    before = net.producer(source)
    if before is None or before.op in COMPUTE:  # it belongs to the op before it
        return net
    if user.op == "MaxPool" and is_nhwc(user) and not has_control(user):
        moved, read = user, user.name
        user = net.only_user(read)
    if user is None or not _can_take(net, user, read):
        return net
    affine = affine_of(
        net, step, source, _input_channels(net, user), 2 if user.op == "MatMul" else 4
    )
    if affine is None or (affine.shift.any() and _bias_user(net, user.name) is None):
        return net
    if moved is None:
        return net.changed(_absorb(net, user, source, affine), {step.name})
    if not (affine.scale > 0).all():
        return net
    # A growing function and a maximum can change places.
    changes = _absorb(net, user, moved.name, affine)
    return net.changed({moved.name: with_inputs(moved, [source]), **changes}, {step.name})


def _input_channels(net: Net, node: NodeDef) -> int:
    weight = net.constant(data_inputs(node)[1])
    assert weight is not None
    if node.op == "MatMul":
        return int(weight.shape[1 if is_transposed(node) else 0])
    return int(weight.shape[2])


def _can_take(net: Net, node: NodeDef, read: str) -> bool:
    if node.op not in COMPUTE or not is_nhwc(node) or has_control(node) or node.name in net.in_loop:
        return False
    inputs = data_inputs(node)
    weight = net.constant(inputs[1])
    if inputs[0] != read or weight is None or weight.dtype != np.float32:
        return False
    if node.op == "MatMul":
        return not node.attr["transpose_a"].b if "transpose_a" in node.attr else True
    # Padding puts zeros where the shift would have been.
    return text_attr(node, "padding") == "VALID" or weight.shape[:2] == (1, 1)


def _bias_user(net: Net, name: str) -> NodeDef | None:
    user = net.only_user(name)
    if user is None or user.op != "BiasAdd" or not net.is_constant(data_inputs(user)[1]):
        return None
    return user


def _absorb(net: Net, node: NodeDef, source: str, affine: Affine) -> dict[str, NodeDef]:
    name_for = Namer(net.nodes)
    weight = net.constant(data_inputs(node)[1]).astype(np.float64)  # type: ignore[union-attr]
    inner = _input_shape(node, affine.scale), _input_shape(node, affine.shift)
    new_weight = make_const(name_for(f"{node.name}/weight"), (weight * inner[0]).astype(np.float32))
    made = {
        new_weight.name: new_weight,
        node.name: with_inputs(node, [source, new_weight.name]),
    }
    bias_add = _bias_user(net, node.name)
    if bias_add is None:  # then there is no shift, either
        return made
    bias = net.constant(data_inputs(bias_add)[1])
    axes = _inner_axes(node)
    shift = (weight * inner[1]).sum(axis=axes).reshape(output_channels(node, weight))
    new_bias = make_const(name_for(f"{node.name}/bias"), (bias + shift).astype(np.float32))
    return {
        **made,
        new_bias.name: new_bias,
        bias_add.name: make_node(
            "BiasAdd", bias_add.name, [node.name, new_bias.name], T=tf.float32
        ),
    }


def _input_shape(node: NodeDef, values: np.ndarray) -> np.ndarray:
    """One value per input channel, shaped to broadcast over the weight."""
    if node.op == "MatMul":
        return values[None, :] if is_transposed(node) else values[:, None]
    return values[:, None]


def _inner_axes(node: NodeDef) -> tuple[int, ...]:
    if node.op == "MatMul":
        return (1,) if is_transposed(node) else (0,)
    return (0, 1) if node.op == "DepthwiseConv2dNative" else (0, 1, 2)
