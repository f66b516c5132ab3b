"""Finding what can run in INT8: compute ops with what is fused behind them, and their followers."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.saturation import FUSED, why_no_kernel
from lpot.backends.tensorflow.structure.activations import GELUS, match_activation
from lpot.backends.tensorflow.structure.affine import COMPUTE, is_float32, is_nhwc, output_channels
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import (
    CONV_ACTIVATIONS,
    FOLLOWERS,
    MATMUL_ACTIVATIONS,
    MOVERS,
    ORIGIN,
    SUMS,
    Follower,
    Layer,
    Residual,
)
from lpot.backends.tensorflow.structure.nodes import (
    data_inputs,
    has_control,
    tensor_name,
    text_attr,
)
from lpot.core.recipe import OpKey


def key_of(node: NodeDef) -> OpKey:
    if ORIGIN in node.attr:
        name, _, kind = node.attr[ORIGIN].s.decode().rpartition("|")
        return OpKey(name, kind)
    return OpKey(node.name, node.op)


def match_layers(net: Net) -> tuple[dict[str, Layer], dict[OpKey, str]]:
    """Units by op name, and the compute ops that can't be one, with the reason."""
    layers: dict[str, Layer] = {}
    refused: dict[OpKey, str] = {}
    for name in net.order:
        node = net.nodes[name]
        if node.op not in COMPUTE:
            continue
        reason = why_not(net, node)
        if reason:
            refused[key_of(node)] = reason
        else:
            layer = _layer(net, node)
            layers[layer.key.name] = layer
    return layers, refused


def why_not(net: Net, node: NodeDef) -> str:
    """The reason a compute op must stay in FP32; empty when it need not."""
    if place := _control_flow(net, node):
        return place
    if not is_float32(node):
        return "not a float32 op"
    if not is_nhwc(node):
        return "data format NCHW has no INT8 kernel; export the model as NHWC"
    weight = net.constant(data_inputs(node)[1])
    if weight is None:
        if node.op == "MatMul":
            return "both sides are activations: TensorFlow has no INT8 kernel for that"
        return "its weight is not a constant"
    if weight.size == 0:
        return "its weight is empty"
    if not np.isfinite(weight).all():
        return "its weight holds NaN or Inf"
    if net.is_constant(data_inputs(node)[0]):
        return "its input is a constant"
    if node.op == "MatMul" and "transpose_a" in node.attr and node.attr["transpose_a"].b:
        return "transpose_a has no INT8 kernel"
    if node.op == "Conv2D" and _is_grouped(net, node, weight):
        return "a grouped convolution has no INT8 kernel"
    if _strange_strides(node):
        return "strides over batch or channels have no INT8 kernel"
    return why_no_kernel(node.op if node.op in FUSED else "MatMul")


def _control_flow(net: Net, node: NodeDef) -> str:
    if node.name in net.in_loop:
        return "inside a while loop of TensorFlow 1, where no node can be added"
    if node.name in net.in_branch:
        return "inside a conditional of TensorFlow 1, which calibration may not run"
    return ""


def _is_grouped(net: Net, node: NodeDef, weight: np.ndarray) -> bool:
    shape = net.shape(data_inputs(node)[0])
    return shape is not None and shape[-1] not in (None, weight.shape[2])


def _strange_strides(node: NodeDef) -> bool:
    strides = list(node.attr["strides"].list.i) if "strides" in node.attr else [1, 1, 1, 1]
    return strides[0] != 1 or strides[3] != 1


def _layer(net: Net, node: NodeDef) -> Layer:
    x, weight = data_inputs(node)[:2]
    value = net.constant(weight)
    assert value is not None
    bias, last = None, node.name
    user = net.only_user(last)
    if user is not None and user.op == "BiasAdd" and net.is_constant(data_inputs(user)[1]):
        bias, last = data_inputs(user)[1], user.name
    activation, out = _activation(net, last, node.op)
    padding = None
    padded = False
    if node.op != "MatMul":
        padded = _is_padded(node, value)
        folded = _pad_before(net, node, x)
        if folded is not None:
            x, padding = folded
            padded = True
    residual = _residual(net, last, node.op) if not activation else None
    return Layer(
        key=key_of(node),
        node=node.name,
        x=x,
        weight=weight,
        bias=bias,
        activation=activation,
        out=out,
        channels=output_channels(node, value),
        padding=padding,
        padded=padded,
        residual=residual,
        is_matmul=node.op == "MatMul",
    )


def _is_padded(node: NodeDef, weight: np.ndarray) -> bool:
    padding = text_attr(node, "padding")
    if padding == "EXPLICIT":
        return any(node.attr["explicit_paddings"].list.i)
    return padding == "SAME" and weight.shape[:2] != (1, 1)


def _activation(net: Net, name: str, op: str) -> tuple[str, str]:
    """What the op's own kernel can do to its result, and the node where that ends."""
    user = net.only_user(name)
    known = MATMUL_ACTIVATIONS if op == "MatMul" else CONV_ACTIVATIONS
    if user is not None and user.op in known and not has_control(user):
        return user.op, user.name
    if op == "MatMul":
        found = match_activation(net, name, GELUS)
        if found is not None:
            return found
    return "", name


def _residual(net: Net, name: str, op: str) -> Residual | None:
    add = net.only_user(name)
    if op == "DepthwiseConv2dNative" or add is None or add.op not in SUMS or has_control(add):
        return None
    operands = data_inputs(add)
    if len(operands) != 2 or operands.count(name) != 1:
        return None
    addend = operands[1 - operands.index(name)]
    if net.is_constant(addend):
        return None
    user = net.only_user(add.name)
    if (
        op != "MatMul"
        and user is not None
        and user.op in CONV_ACTIVATIONS
        and not has_control(user)
    ):
        return Residual(add.name, addend, user.op, user.name)
    return Residual(add.name, addend, "", add.name)


def _pad_before(net: Net, node: NodeDef, x: str) -> tuple[str, tuple[int, ...]] | None:
    """The tensor before a Pad of zeros around height and width, and that padding."""
    pad = net.producer(x)
    if pad is None or pad.op not in ("Pad", "PadV2") or has_control(pad) or pad.name in net.keep:
        return None
    if text_attr(node, "padding") != "VALID":
        return None
    inputs = data_inputs(pad)
    amounts = net.constant(inputs[1])
    if amounts is None or amounts.shape != (4, 2) or amounts[0].any() or amounts[3].any():
        return None
    if pad.op == "PadV2":
        value = net.constant(inputs[2])
        if value is None or value.any():
            return None
    if (amounts < 0).any():
        return None
    return tensor_name(inputs[0]), tuple(int(amount) for amount in amounts.reshape(-1))


def match_followers(net: Net) -> tuple[dict[str, Follower], dict[OpKey, str]]:
    """Followers and movers by name, and the followers that can't be one, with the reason."""
    followers: dict[str, Follower] = {}
    refused: dict[OpKey, str] = {}
    for name in net.order:
        node = net.nodes[name]
        if node.op not in (*FOLLOWERS, *MOVERS) or not is_float32(node) or has_control(node):
            continue
        reason = _why_not_follow(net, node)
        if not reason:
            inputs = data_inputs(node)
            active = inputs[:-1] if node.op == "ConcatV2" else inputs[:1]
            followers[name] = Follower(key_of(node), tuple(active), name)
        elif node.op in FOLLOWERS:
            refused[key_of(node)] = reason
    return followers, refused


def _why_not_follow(net: Net, node: NodeDef) -> str:
    if place := _control_flow(net, node):
        return place
    if not is_nhwc(node):
        return "data format NCHW has no INT8 kernel; export the model as NHWC"
    if node.op == "ConcatV2":
        inputs = data_inputs(node)
        if not net.is_constant(inputs[-1]):
            return "its axis is not a constant"
        if any(net.is_constant(name) for name in inputs[:-1]):
            return "one of its inputs is a constant"
        return ""
    if node.op in MOVERS:
        return _why_not_move(net, node)
    sizes = [*node.attr["ksize"].list.i, *node.attr["strides"].list.i]
    if any(sizes[index] != 1 for index in (0, 3, 4, 7)):
        return "pooling over batch or channels has no INT8 kernel"
    if text_attr(node, "padding") not in ("SAME", "VALID"):
        return "explicit padding has no INT8 pooling kernel"
    return ""


def _why_not_move(net: Net, node: NodeDef) -> str:
    inputs = data_inputs(node)
    if net.is_constant(inputs[0]):
        return "its input is a constant"
    if node.op == "PadV2":
        value = net.constant(inputs[2])
        return "" if value is not None and not value.any() else "it pads with a value other than 0"
    return ""
