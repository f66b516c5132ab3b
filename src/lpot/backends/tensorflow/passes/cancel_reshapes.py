"""Take out Reshapes that undo each other, join those in a row, and keep one of equal ones."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import CONV_ACTIVATIONS
from lpot.backends.tensorflow.structure.nodes import data_inputs, has_control, with_inputs


def cancel_reshapes(net: Net) -> Net:
    renamed: dict[str, str] = {}
    changes: dict[str, NodeDef] = {}
    seen: dict[tuple[str, bytes], str] = {}
    for name in net.order:
        node = net.nodes[name]
        if not _is_plain(net, node):
            continue
        start = _start(net, node, renamed)
        shape = net.shape(name)
        if shape is not None and _is_same(net.shape(start), shape):
            renamed[name] = start
            continue
        sizes = net.constant(data_inputs(node)[1])
        assert sizes is not None
        twin = seen.setdefault((start, sizes.astype("int64").tobytes()), name)
        if twin != name:
            renamed[name] = twin
        elif start != data_inputs(node)[0]:
            changes[name] = with_inputs(node, [start, data_inputs(node)[1]])
    return net.changed(changes).rewired(renamed).pruned()


def _is_plain(net: Net, node: NodeDef) -> bool:
    """A Reshape to a constant shape that says what it is by itself."""
    if node.op != "Reshape" or has_control(node) or node.name in net.in_loop:
        return False
    sizes = net.constant(data_inputs(node)[1])
    return sizes is not None and 0 not in sizes


def _start(net: Net, node: NodeDef, renamed: dict[str, str]) -> str:
    """The tensor before all Reshapes in a row that end in `node`."""
    source = data_inputs(node)[0]
    source = renamed.get(source, source)
    before = net.producer(source)
    if before is None or before.op != "Reshape" or has_control(before):
        return source
    return _start(net, before, renamed)


def _is_same(start: tuple[int | None, ...] | None, end: tuple[int | None, ...]) -> bool:
    """Same sizes, with at most one unknown and in the same place: then that one is equal too."""
    return start == end and sum(size is None for size in end) <= 1


# -- Move the Squeeze of a one-dimensional convolution past its bias and activation.


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
