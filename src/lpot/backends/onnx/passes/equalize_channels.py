"""Even out torn channel ranges between layers, by powers of two: FP32 results stay bit for bit."""

from __future__ import annotations

import numpy as np

from lpot.backends.onnx.channels import ChannelGroup, channel_groups
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.layers import made_by, read_by, scale_made, scale_read
from lpot.core.ptq.equalize import channel_scales

ROUNDS = 4  # a chain of layers settles after a few


def equalize_channels(graph: Graph) -> Graph:
    groups = channel_groups(graph)
    weights = dict(graph.weights)
    changed = False
    for _ in range(ROUNDS):
        moved = [_equalize(weights, group) for group in groups]
        if not any(moved):
            break
        changed = True
    return graph.replaced(graph.nodes, weights) if changed else graph


def _equalize(weights: dict[str, np.ndarray], group: ChannelGroup) -> bool:
    made, read = np.zeros(group.size, np.float32), np.zeros(group.size, np.float32)
    for layer, start in group.makers:
        _raise(made, made_by(weights, layer), start)
    for name, start in group.biases:
        _raise(made, np.abs(weights[name]).reshape(-1), start)
    for layer, start, channels in group.readers:
        entries = read_by(weights, layer).reshape(channels.outer, channels.width, channels.inner)
        _raise(read, entries.max(axis=(0, 2)), start)
    factors = channel_scales(made, read)
    if factors is None:
        return False
    scale = factors.astype(np.float32)
    for layer, start in group.makers:
        count = len(made_by(weights, layer))
        scale_made(weights, layer, 1 / scale[start : start + count])
    for name, start in group.biases:
        part = scale[start : start + weights[name].size]
        weights[name] = weights[name] / part.reshape(weights[name].shape)
    for layer, start, channels in group.readers:
        part = scale[start : start + channels.width].repeat(channels.inner)
        scale_read(weights, layer, np.tile(part, channels.outer))
    return True


def _raise(largest: np.ndarray, values: np.ndarray, start: int) -> None:
    part = largest[start : start + len(values)]
    np.maximum(part, values, out=part)
