"""Even out channels that were torn apart between ops, by powers of two: FP32 keeps every bit.

Works on weights alone, and on whole streams: sums, concatenations, shortcuts with zeros.
"""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.affine import is_transposed, scaled_weight
from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.nodes import Namer, data_inputs, make_const, with_inputs
from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.streams import find_streams
from lpot.core.ptq.equalize import channel_scales
from lpot.core.ptq.streams import Stream

ROUNDS = 4  # a chain of ops settles after a few

Constants = dict[str, np.ndarray]  # node → its second input


def even_streams(net: Net) -> Net:
    streams = find_streams(net)
    changed: Constants = {}
    for _ in range(ROUNDS):
        if not any([_even(net, stream, changed) for stream in streams]):
            break
    name_for = Namer(net.nodes)
    changes: dict[str, NodeDef] = {}
    for name, value in changed.items():
        node = net.nodes[name]
        const = make_const(name_for(f"{name}/evened"), value)
        changes[const.name] = const
        changes[name] = with_inputs(node, [node.input[0], const.name, *node.input[2:]])
    return net.changed(changes).pruned() if changes else net


def _even(net: Net, stream: Stream, changed: Constants) -> bool:
    def value(name: str) -> np.ndarray:
        known = changed.get(name)
        found = net.constant(data_inputs(net.nodes[name])[1]) if known is None else known
        assert found is not None
        return found

    made, read = np.zeros(stream.size), np.zeros(stream.size)
    for name, start in stream.makers:
        _raise(made, _outward(net.nodes[name], value(name)).max(axis=1), start)
    for name, start in stream.biases:
        _raise(made, np.abs(value(name)).reshape(-1), start)
    for name, start in stream.readers:
        _raise(read, _inward(net.nodes[name], value(name)), start)
    scales = channel_scales(made, read)
    if scales is None:
        return False
    for name, start in stream.makers:
        count = len(_outward(net.nodes[name], value(name)))
        part = 1.0 / scales[start : start + count]
        changed[name] = scaled_weight(net.nodes[name], value(name), part)
    for name, start in stream.biases:
        part = scales[start : start + value(name).size].reshape(value(name).shape)
        changed[name] = (value(name) / part).astype(np.float32)
    for name, start in stream.readers:
        weight, axis = value(name), _inner_axis(net.nodes[name])
        shape = [1] * weight.ndim
        shape[axis] = -1
        part = scales[start : start + weight.shape[axis]].reshape(shape)
        changed[name] = (weight * part).astype(np.float32)
    return True


def _outward(node: NodeDef, weight: np.ndarray) -> np.ndarray:
    """Absolute weights as (output channels, everything else)."""
    size = np.abs(weight)
    if node.op == "DepthwiseConv2dNative":
        return size.reshape(-1, weight.shape[2] * weight.shape[3]).T
    if node.op == "MatMul" and is_transposed(node):
        return size
    return size.reshape(-1, weight.shape[-1]).T


def _inner_axis(node: NodeDef) -> int:
    if node.op == "MatMul":
        return 1 if is_transposed(node) else 0
    return 2


def _inward(node: NodeDef, weight: np.ndarray) -> np.ndarray:
    """By input channel, the largest weight that reads it."""
    axis = _inner_axis(node)
    return np.abs(weight).max(axis=tuple(index for index in range(weight.ndim) if index != axis))


def _raise(largest: np.ndarray, values: np.ndarray, start: int) -> None:
    part = largest[start : start + len(values)]
    np.maximum(part, values, out=part)
