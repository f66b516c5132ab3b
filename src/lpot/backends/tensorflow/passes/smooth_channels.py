"""SmoothQuant in front of matrix products: what is taken from outlier channels of the activation is
given to the weights that read it.

The factors are powers of two, so that FP32 results stay bit for bit. All products that read a
tensor share its factors, and one quantized form of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lpot.backends.tensorflow.graph import Net
from lpot.backends.tensorflow.layers import Layer
from lpot.backends.tensorflow.nodes import (
    Namer,
    make_const,
    make_node,
    node_name,
    with_inputs,
)
from lpot.backends.tensorflow.passes.equalize_channels import input_axis, input_peaks
from lpot.backends.tensorflow.passes.fold_factors import fold_factors
from lpot.backends.tensorflow.prepare import Patched, matched
from lpot.backends.tensorflow.runtime import NodeDef, tf
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
