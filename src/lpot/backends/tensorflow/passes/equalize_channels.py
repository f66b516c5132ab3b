"""Equalize the channels between two compute ops, without changing what the graph computes.

Behind a Relu (or nothing) a channel may be divided by a factor if the weights that read it are
multiplied by the same. Factors are powers of two, so that every float result stays the same to the
last bit, while one scale for all channels fits far better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.affine import is_transposed, scaled_weight
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Follower, Layer
from lpot.backends.tensorflow.structure.nodes import Namer, data_inputs, make_const, with_inputs

HOMOGENEOUS = ("", "Relu")
LARGEST = 2.0**12


def equalizable(
    net: Net, layers: Mapping[str, Layer], followers: Mapping[str, Follower]
) -> dict[str, tuple[Layer, ...]]:
    """Name of the op that makes a tensor → the layers that read it, where nobody else does."""
    found = {}
    by_node = {layer.node: layer for layer in layers.values()}
    for name, layer in layers.items():
        if layer.activation not in HOMOGENEOUS or layer.residual is not None:
            continue
        readers = _readers(net, layer.out, by_node, followers)
        if readers:
            found[name] = tuple(readers)
    return found


def _readers(
    net: Net, tensor: str, by_node: Mapping[str, Layer], followers: Mapping[str, Follower]
) -> list[Layer] | None:
    """All readers as layers, through pooling and padding; None when one is something else."""
    if tensor in net.pinned:
        return None
    found: list[Layer] = []
    for user in net.users.get(tensor, ()):
        item = followers.get(user.name)
        if user.name in by_node and data_inputs(user)[0] == tensor:
            found.append(by_node[user.name])
        elif item is not None and item.key.kind in ("MaxPool", "AvgPool", "Pad", "PadV2"):
            behind = _readers(net, item.out, by_node, followers)
            if behind is None:
                return None
            found += behind
        else:
            return None
    return found


def factors(peaks: np.ndarray, net: Net, readers: Iterable[Layer]) -> np.ndarray:
    """By how much to divide each channel: half of its excess goes to the weights that read it."""
    weights = np.max([input_peaks(net, reader) for reader in readers], axis=0).astype(np.float64)
    alive = (peaks > 0) & (weights > 0)
    if not alive.any():
        return np.ones(peaks.shape)
    ratio = np.ones(peaks.shape, np.float64)
    ratio[alive] = np.sqrt(peaks[alive] / weights[alive])
    ratio[alive] /= np.exp(np.mean(np.log(ratio[alive])))
    # A channel that was never seen alive must not coarsen the weights of the others.
    usual = np.median((weights * ratio)[alive])
    dead = (peaks == 0) & (weights > usual)
    ratio[dead] = usual / weights[dead]
    return np.exp2(np.rint(np.log2(np.clip(ratio, 1 / LARGEST, LARGEST))))


def input_peaks(net: Net, layer: Layer) -> np.ndarray:
    """By input channel, the largest weight that reads it."""
    weight = np.abs(net.constant(layer.weight))  # type: ignore[arg-type]
    axis = input_axis(net, layer)
    others = tuple(index for index in range(weight.ndim) if index != axis)
    return np.asarray(weight.max(axis=others))


def input_axis(net: Net, layer: Layer) -> int:
    """Where in the weight the input channels lie."""
    if layer.is_matmul:
        return 1 if is_transposed(net.nodes[layer.node]) else 0
    return 2


def equalize_channels(
    net: Net,
    layers: Mapping[str, Layer],
    followers: Mapping[str, Follower],
    scales: Mapping[str, np.ndarray],
) -> Net:
    """`scales`: op name → what to divide its output channels by."""
    pairs = equalizable(net, layers, followers)
    weights: dict[str, np.ndarray] = {}  # node → its weight so far
    biases: dict[str, np.ndarray] = {}

    def weight(layer: Layer) -> np.ndarray:
        value = weights.get(layer.node, net.constant(layer.weight))
        assert value is not None
        return value

    for name, scale in scales.items():
        layer = layers[name]
        weights[layer.node] = scaled_weight(net.nodes[layer.node], weight(layer), 1.0 / scale)
        if layer.bias is not None:
            biases[layer.node] = net.constant(layer.bias) / scale.astype(np.float32)  # type: ignore[operator]
        for reader in dict.fromkeys(pairs[name]):
            shape = [1] * weight(reader).ndim
            shape[input_axis(net, reader)] = -1
            weights[reader.node] = (weight(reader) * scale.reshape(shape)).astype(np.float32)
    return net.changed(_changes(net, layers, weights, biases)).pruned()


def _changes(
    net: Net,
    layers: Mapping[str, Layer],
    weights: Mapping[str, np.ndarray],
    biases: Mapping[str, np.ndarray],
) -> dict[str, NodeDef]:
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    for layer in layers.values():
        node = net.nodes[layer.node]
        if layer.node in weights:
            const = make_const(name_for(f"{layer.node}/equalized"), weights[layer.node])
            changes[const.name] = const
            changes[layer.node] = with_inputs(node, [node.input[0], const.name, *node.input[2:]])
        if layer.node in biases:
            user = net.only_user(layer.node)
            assert user is not None
            const = make_const(name_for(f"{layer.node}/equalized_bias"), biases[layer.node])
            changes[const.name] = const
            changes[user.name] = with_inputs(user, [user.input[0], const.name])
    return changes
