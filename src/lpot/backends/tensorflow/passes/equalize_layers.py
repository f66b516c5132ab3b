"""Cross-layer equalization of channels whose weights differ much: FP32 results stay bit for bit.

Works on weights alone, and on whole streams: sums, concatenations, shortcuts with zeros.
"""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.affine import is_transposed, scaled_weight
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import Namer, data_inputs, make_const, with_inputs
from lpot.backends.tensorflow.structure.streams import find_streams
from lpot.core.ptq.equalize import Layers, equalize


def equalize_layers(net: Net) -> Net:
    layers = _Layers(net)
    equalize(find_streams(net), layers)
    name_for = Namer(net.nodes)
    changes: dict[str, NodeDef] = {}
    for name, value in layers.changed.items():
        node = net.nodes[name]
        const = make_const(name_for(f"{name}/equalized"), value)
        changes[const.name] = const
        changes[name] = with_inputs(node, [node.input[0], const.name, *node.input[2:]])
    return net.changed(changes).pruned() if changes else net


class _Layers(Layers):
    def __init__(self, net: Net) -> None:
        self.net = net
        self.changed: dict[str, np.ndarray] = {}  # node → its second input

    def _value(self, op: str) -> np.ndarray:
        if op in self.changed:
            return self.changed[op]
        found = self.net.constant(data_inputs(self.net.nodes[op])[1])
        assert found is not None
        return found

    def made(self, op: str) -> np.ndarray:
        node, size = self.net.nodes[op], np.abs(self._value(op))
        if node.op == "DepthwiseConv2dNative":
            size = size.reshape(-1, size.shape[2] * size.shape[3])
        elif node.op == "MatMul" and is_transposed(node):
            size = size.T
        return np.asarray(size.reshape(-1, size.shape[-1]).max(axis=0))

    def read(self, op: str) -> np.ndarray:
        size, axis = np.abs(self._value(op)), _inner_axis(self.net.nodes[op])
        others = tuple(index for index in range(size.ndim) if index != axis)
        return np.asarray(size.max(axis=others))

    def divide_made(self, op: str, factors: np.ndarray) -> None:
        self.changed[op] = scaled_weight(self.net.nodes[op], self._value(op), 1.0 / factors)

    def multiply_read(self, op: str, factors: np.ndarray) -> None:
        weight = self._value(op)
        shape = [1] * weight.ndim
        shape[_inner_axis(self.net.nodes[op])] = -1
        self.changed[op] = (weight * factors.reshape(shape)).astype(np.float32)

    def added(self, op: str) -> np.ndarray:
        return np.asarray(np.abs(self._value(op)).reshape(-1))

    def divide_added(self, op: str, factors: np.ndarray) -> None:
        value = self._value(op)
        self.changed[op] = (value / factors.reshape(value.shape)).astype(np.float32)


def _inner_axis(node: NodeDef) -> int:
    if node.op == "MatMul":
        return 1 if is_transposed(node) else 0
    return 2
