"""SmoothQuant in front of matrix products: what is taken from outlier channels of the activation is
given to the weights that read it.

The factors are powers of two, so that FP32 results stay bit for bit. All products that read a
tensor share its factors, and one quantized form of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from lpot.backends.tensorflow.passes.equalize_channels import input_axis, input_peaks
from lpot.backends.tensorflow.prepare import Patched, matched
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import is_float32
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Layer
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    has_control,
    make_const,
    make_node,
    node_name,
    with_inputs,
)
from lpot.core.numerics.observations import Extremes
from lpot.core.ptq.smoothquant import smooth_factors


def outlying_inputs(patched: Patched) -> dict[str, list[Layer]]:
    """Tensors of which a few channels are far larger than the others, and the products that read
    them."""
    found: dict[str, list[Layer]] = {}
    for layer in patched.prepared.layers.values():
        seen = patched.extremes.get(layer.x)
        if layer.is_matmul and seen is not None and seen.outlies:
            found.setdefault(layer.x, []).append(layer)
    return found


def smooth_channels(patched: Patched, alpha: float) -> Patched:
    """`alpha` is how much of the difficulty moves to the weights: 0 none, 1 all."""
    net = patched.prepared.net
    fresh: dict[str, Extremes] = {}
    like: dict[str, str] = {}
    scaled: dict[str, tuple[str, np.ndarray]] = {}
    for tensor, layers in outlying_inputs(patched).items():
        seen = patched.extremes[tensor]
        read = np.max([input_peaks(net, layer) for layer in layers], axis=0)
        factors = smooth_factors(seen.largest, read, alpha)
        if (factors == 1.0).all():
            continue
        changes = _scaled_weights(net, layers, factors)
        readers = {layer.node for layer in layers}
        folded = fold_factors(net, patched.prepared.net, tensor, readers, factors)
        smooth = tensor
        if folded is None:
            folded, smooth = _multiplied(net, tensor, factors)
            changes.update(_reading(changes, layers, smooth))
        net = net.changed({**folded, **changes})
        fresh[smooth] = Extremes(seen.low / factors, seen.high / factors)
        like[smooth] = tensor
        scaled[smooth] = (tensor, 1.0 / factors)
    if not fresh:
        return patched
    return replace(
        patched,
        prepared=matched(net.pruned()),
        fresh={**patched.fresh, **fresh},
        like={**patched.like, **like},
        scaled={**patched.scaled, **scaled},
    )


def _scaled_weights(net: Net, layers: list[Layer], factors: np.ndarray) -> dict[str, NodeDef]:
    """By name, fresh weights and the products that read them."""
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for layer in layers:
        value = net.constant(layer.weight)
        assert value is not None
        shape = [1, 1]
        shape[input_axis(net, layer)] = -1
        scaled = (value * factors.reshape(shape)).astype(np.float32)
        const = make_const(name_for(f"{layer.node}/smoothed"), scaled)
        node = net.nodes[layer.node]
        changes[const.name] = const
        changes[layer.node] = with_inputs(node, [node.input[0], const.name, *node.input[2:]])
    return changes


def _multiplied(net: Net, tensor: str, factors: np.ndarray) -> tuple[dict[str, NodeDef], str]:
    """One Mul behind the tensor, for all that read it smoothed."""
    name_for = Namer(net.nodes)
    smooth = name_for(f"{node_name(tensor)}/smooth")
    const = make_const(name_for(f"{smooth}/factors"), (1.0 / factors).astype(np.float32))
    made = make_node("Mul", smooth, [tensor, const.name], T=tf.float32)
    return {const.name: const, smooth: made}, smooth


def _reading(changes: dict[str, NodeDef], layers: list[Layer], smooth: str) -> dict[str, NodeDef]:
    return {
        layer.node: with_inputs(changes[layer.node], [smooth, *changes[layer.node].input[1:]])
        for layer in layers
    }


# -- Divide the channels of a tensor by changing the constants that make it, as in LayerNorm.
#
# A sum is divided where both sides are, a product where one side is; the walk goes up to
# constants. It succeeds only if nobody else reads what was changed on the way. Factors are powers
# of two, so that every result is the old one divided, to the last bit.


SUMS = ("Add", "AddV2", "Sub", "BiasAdd")
DEEPEST = 12  # nodes between the tensor and its constants


def fold_factors(
    net: Net, shapes: Net, tensor: str, readers: Collection[str], factors: np.ndarray
) -> dict[str, NodeDef] | None:
    """The changed nodes by name; None where the factors can't go up to constants.

    `shapes` is a graph whose tensors of the same name have the same sizes, looked at before.
    """
    walk = _Walk(net, shapes, factors)
    if not walk.divide(tensor, 0) or not walk.is_closed(tensor, readers):
        return None
    return walk.changes


class _Walk:
    def __init__(self, net: Net, shapes: Net, factors: np.ndarray) -> None:
        self.net, self.shapes, self.factors = net, shapes, factors
        self.changes: dict[str, NodeDef] = {}
        self.divided: dict[str, set[str]] = {}  # node → the inputs of it that are divided
        self.name_for = Namer(net.nodes)

    def divide(self, tensor: str, depth: int) -> bool:
        """Note what has to change for `tensor` to be divided; False where it can't be."""
        if tensor in self.divided:
            return True
        node = self.net.nodes.get(tensor)
        if node is None or depth > DEEPEST or tensor in self.net.pinned or has_control(node):
            return False
        if not is_float32(node) or tensor in self.net.in_loop:
            return False
        inputs = data_inputs(node)
        if node.op == "Reshape" and self._keeps_channels(tensor, inputs[0]):
            return self._through(node, inputs[:1], depth)
        if node.op in SUMS:
            return self._through(node, inputs, depth)
        if node.op == "Mul":
            # The side that ends in constants; a constant itself comes first.
            order = sorted(inputs, key=lambda name: not self.net.is_constant(name))
            return any(self._through(node, [name], depth) for name in order)
        return False

    def _through(self, node: NodeDef, inputs: list[str], depth: int) -> bool:
        kept = dict(self.changes), dict(self.divided)
        fresh = list(data_inputs(node))
        self.divided[node.name] = set(inputs)
        for name in dict.fromkeys(inputs):
            if self.net.is_constant(name):
                const = self._constant(name)
                if const is None:
                    break
                fresh = [const if source == name else source for source in fresh]
            elif not self.divide(name, depth + 1):
                break
        else:
            if fresh != data_inputs(node):
                self.changes[node.name] = with_inputs(node, fresh)
            return True
        self.changes, self.divided = kept
        return False

    def _constant(self, name: str) -> str | None:
        """The name of the constant divided, where it has one value a channel or one for all."""
        value = self.net.constant(name)
        assert value is not None
        size = self.factors.size
        if value.dtype != np.float32 or (value.size != 1 and value.shape[-1:] != (size,)):
            return None
        scaled = (value / self.factors).astype(np.float32)
        const = make_const(self.name_for(f"{name}/smoothed"), scaled)
        self.changes[const.name] = const
        return str(const.name)

    def _keeps_channels(self, tensor: str, source: str) -> bool:
        if tensor not in self.shapes.nodes or source not in self.shapes.nodes:
            return False
        sizes = self.shapes.shape(tensor), self.shapes.shape(source)
        return all(shape and shape[-1] == self.factors.size for shape in sizes)

    def is_closed(self, tensor: str, readers: Collection[str]) -> bool:
        """Does everyone who reads a divided tensor expect it divided?"""
        for name in self.divided:
            for user in self.net.users.get(name, ()):
                if name == tensor:
                    if user.name not in readers or data_inputs(user).count(name) != 1:
                        return False
                elif name not in self.divided.get(user.name, ()):
                    return False
        return True
