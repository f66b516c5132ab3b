"""Move the Squeeze of a one-dimensional convolution past its bias and activation."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.layers import CONV_ACTIVATIONS
from lpot.backends.tensorflow.nodes import data_inputs, has_control, with_inputs
from lpot.backends.tensorflow.runtime import NodeDef

CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")
BIASES = ("BiasAdd", "Add", "AddV2")


def sink_squeezes(net: Net) -> Net:
    for name in [name for name in net.order if net.nodes[name].op in CONVOLUTIONS]:
        squeeze = net.only_user(name)
        if squeeze is None or squeeze.op != "Squeeze" or not _keeps_channels(squeeze):
            continue
        while (user := net.only_user(squeeze.name)) is not None and _is_per_channel(net, user):
            upper = with_inputs(
                user,
                [data_inputs(squeeze)[0] if n == squeeze.name else n for n in data_inputs(user)],
            )
            upper.name = squeeze.name
            lower = with_inputs(squeeze, [squeeze.name])
            lower.name = user.name
            net = net.changed({upper.name: upper, lower.name: lower})
            squeeze = lower
    return net


def _keeps_channels(squeeze: NodeDef) -> bool:
    dims = list(squeeze.attr["squeeze_dims"].list.i) if "squeeze_dims" in squeeze.attr else []
    return bool(dims) and not {-1, 3} & set(dims) and not has_control(squeeze)


def _is_per_channel(net: Net, node: NodeDef) -> bool:
    """Does it treat each channel alike, whatever the rank?"""
    if has_control(node):
        return False
    if node.op in CONV_ACTIVATIONS:
        return True
    if node.op not in BIASES:
        return False
    values = [net.constant(name) for name in data_inputs(node)]
    constants = [value for value in values if value is not None]
    return len(constants) == 1 and constants[0].ndim <= 1 and constants[0].dtype == np.float32
