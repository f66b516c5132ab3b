"""Ops that let a positive factor through, channel by channel: where it goes in and comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, attribute, ints
from lpot.backends.onnx.layers import vector_axis
from lpot.core.ptq.streams import Channels


@dataclass(frozen=True, eq=False)
class Link:
    """What one op ties together. `pairs`: (tensor, the one it is part of, where it begins there).

    `bias` is a constant that the op adds, to be scaled with the channels.
    """

    outputs: Mapping[str, Channels]
    pairs: tuple[tuple[str, str, int], ...]
    bias: str = ""


Known = Mapping[str, Channels]
Shape = tuple[int | str | None, ...]


def link(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    """How the op ties its tensors together; None where it does not let factors through."""
    find = _LINKS.get(node.op_type)
    return None if find is None else find(graph, node, known)


def _same(node: NodeProto, channels: Channels) -> Link:
    return Link({node.output[0]: channels}, ((node.input[0], node.output[0], 0),))


def _elementwise(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    channels = known.get(node.input[0])
    others = all(graph.is_constant(name) for name in node.input[1:] if name)
    return None if channels is None or not others else _same(node, channels)


def _spatial(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    """Pooling and resizing: along the axes behind the channels."""
    channels = known.get(node.input[0])
    alone = sum(bool(name) for name in node.output) == 1
    return None if channels is None or channels.axes != (1,) or not alone else _same(node, channels)


def _pad(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    """Zeros stay zeros; on the channels' own axis they are channels that no factor changes."""
    channels = known.get(node.input[0])
    names = [name for name in node.input[1:] if name]
    if channels is None or not all(name in graph.weights for name in names):
        return None
    given = [graph.weights[name] for name in names]
    pads = given[0] if given else np.asarray(attribute(node, "pads", ()))
    value = given[1] if len(given) > 1 else np.asarray(attribute(node, "value", 0.0))
    at_ends = np.asarray(pads).reshape(2, -1) if np.size(pads) == 2 * channels.rank else None
    zero = attribute(node, "mode", b"constant") == b"constant" and not np.any(value)
    if at_ends is None or not zero:
        return None
    more = at_ends[:, list(channels.axes)]
    if not more.any():
        return _same(node, channels)
    if len(channels.axes) > 1 or not channels.is_plain or more.min() < 0:
        return None
    output = node.output[0]
    made = replace(channels, width=channels.width + int(more.sum()))
    return Link({output: made}, ((node.input[0], output, int(more[0, 0])),))


def _slice(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    """Fewer places of a picture, or a run of the channels."""
    channels = known.get(node.input[0])
    starts, axes, steps = (_numbers(graph, node, *spot) for spot in _SLICE)
    if channels is None or starts is None or axes is None or steps is None:
        return None
    axes = axes or list(range(len(starts)))
    cut = [index for index, axis in enumerate(axes) if axis % channels.rank in channels.axes]
    if not cut:
        return _same(node, channels)
    shape = graph.shapes.get(node.output[0], ())
    size = shape[channels.axes[0]] if len(shape) == channels.rank else None
    plain = channels.is_plain and len(channels.axes) == 1 and not (steps and steps[cut[0]] != 1)
    if not plain or not isinstance(size, int):
        return None
    start = starts[cut[0]] + (channels.width if starts[cut[0]] < 0 else 0)
    output = node.output[0]
    made = replace(channels, width=size)
    return Link({output: made}, ((output, node.input[0], max(start, 0)),))


_SLICE = (("starts", 1), ("axes", 3), ("steps", 4))


def _numbers(graph: Graph, node: NodeProto, name: str, place: int) -> list[int] | None:
    """An attribute of old opsets or an input of new ones; None where it is not constant."""
    if len(node.input) <= place or not node.input[place]:
        return ints(node, name)
    given = graph.weights.get(node.input[place])
    return None if given is None else [int(value) for value in given.reshape(-1)]


def _reduce_mean(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    channels = known.get(node.input[0])
    given = graph.weights.get(node.input[1]) if len(node.input) > 1 else None
    axes = ints(node, "axes") if given is None else [int(axis) for axis in given.reshape(-1)]
    if channels is None or not axes or not channels.is_plain:
        return None
    gone = {axis % channels.rank for axis in axes}
    if gone & set(channels.axes):
        return None
    if attribute(node, "keepdims", 1):
        return _same(node, channels)
    kept = tuple(axis - sum(other < axis for other in gone) for axis in channels.axes)
    return _same(node, Channels(kept, channels.rank - len(gone), channels.width))


def _transpose(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    channels = known.get(node.input[0])
    if channels is None:
        return None
    order = ints(node, "perm") or list(range(channels.rank))[::-1]
    return _same(node, replace(channels, axes=tuple(order.index(axis) for axis in channels.axes)))


def _reshape(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    """The channels keep their stride and their number, on however many axes; or are flattened."""
    channels = known.get(node.input[0])
    before, after = graph.shapes.get(node.input[0]), graph.shapes.get(node.output[0])
    if channels is None or before is None or after is None or not channels.is_plain:
        return None
    first, last = channels.axes[0], channels.axes[-1]
    if channels.axes != tuple(range(first, last + 1)):
        return None
    stride = _product(before[last + 1 :])
    for end in range(len(after) - 1, -1, -1):
        if stride is None or _product(after[end + 1 :]) != stride:
            continue
        for start in range(end, -1, -1):
            if _product(after[start : end + 1]) == channels.width:
                axes = tuple(range(start, end + 1))
                return _same(node, Channels(axes, len(after), channels.width))
    return _flattened(node, channels, before, after)


def _flattened(node: NodeProto, channels: Channels, before: Shape, after: Shape) -> Link | None:
    """The channels and all that lies behind them, or some of what lies before, on the last axis."""
    at, size = channels.axes[0], after[-1] if after else None
    inner = _product(before[at + 1 :])
    if len(channels.axes) != 1 or not isinstance(size, int) or inner is None:
        return None
    for start in range(at, 0, -1):
        outer = _product(before[start:at])
        if outer is not None and outer * channels.width * inner == size:
            last = len(after) - 1
            return _same(node, Channels((last,), last + 1, channels.width, inner, outer))
    return None


def _product(shape: Shape) -> int | None:
    known = [size for size in shape if isinstance(size, int)]
    return math.prod(known) if len(known) == len(shape) else None


def _add(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    first, second = node.input
    if graph.is_constant(first):
        first, second = second, first
    channels = known.get(first)
    if channels is None:
        return None
    if graph.is_constant(second):
        array = graph.weights[second]
        alone = len(graph.consumers[second]) == 1 and array.dtype == np.float32
        fits = vector_axis(array, channels.rank) == channels.axes[0] and len(channels.axes) == 1
        if not (alone and fits and array.size == channels.width):
            return None
        return Link({node.output[0]: channels}, ((first, node.output[0], 0),), bias=second)
    if known.get(second) != channels:
        return None
    pairs = ((first, node.output[0], 0), (second, node.output[0], 0))
    return Link({node.output[0]: channels}, pairs)


def _mul(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    """One side carries the channels, the other is a gate that is left as it is.

    `known` are those that nothing has fixed so far: of two such the first is carried.
    """
    for carried, gate in (node.input, reversed(node.input)):
        channels = known.get(carried)
        if channels is None or carried == gate:
            continue
        number = graph.is_constant(gate) and graph.weights[gate].size == 1
        moving = not graph.is_constant(gate)
        if (number or moving) and graph.shapes.get(carried) == graph.shapes.get(node.output[0]):
            return Link({node.output[0]: channels}, ((carried, node.output[0], 0),))
    return None


def _attend(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    """Weights of attention times values: sums over tokens, never over channels."""
    left, values = node.input
    channels = known.get(values)
    if channels is None or left in known or channels.rank - 2 in channels.axes:
        return None
    if len(graph.shapes.get(left, ())) != channels.rank:
        return None
    return Link({node.output[0]: channels}, ((values, node.output[0], 0),))


def _concat(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    parts = [known.get(name) for name in node.input]
    first = parts[0]
    if first is None or any(p is None or p.axes != first.axes for p in parts):
        return None
    if any(part is not None and not part.is_plain for part in parts):
        return None
    widths = [part.width for part in parts if part is not None]
    axis = int(attribute(node, "axis", 0)) % first.rank
    along = first.axes == (axis,)
    if not along and (axis in first.axes or len(set(widths)) > 1):
        return None
    starts = [sum(widths[:index]) if along else 0 for index in range(len(widths))]
    made = replace(first, width=sum(widths)) if along else first
    output = node.output[0]
    pairs = tuple((name, output, start) for name, start in zip(node.input, starts, strict=True))
    return Link({output: made}, pairs)


def _split(graph: Graph, node: NodeProto, known: Known) -> Link | None:
    channels = known.get(node.input[0])
    if channels is None or not channels.is_plain:
        return None
    axis = int(attribute(node, "axis", 0)) % channels.rank
    outputs, pairs, start = {}, [], 0
    for name in node.output:
        shape = graph.shapes.get(name, ())
        along = channels.axes == (axis,)
        size = shape[axis] if len(shape) == channels.rank else None
        if not isinstance(size, int) or (not along and axis in channels.axes):
            return None
        outputs[name] = replace(channels, width=size) if along else channels
        pairs.append((name, node.input[0], start if along else 0))
        start += size
    return Link(outputs, tuple(pairs))


_LINKS: dict[str, Callable[[Graph, NodeProto, Known], Link | None]] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Identity", "Dropout"), _elementwise),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), _spatial),
    **dict.fromkeys(("Resize", "Upsample"), _spatial),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Pad": _pad,
    "Slice": _slice,
    "ReduceMean": _reduce_mean,
    "Transpose": _transpose,
    "Add": _add,
    "Mul": _mul,
    "MatMul": _attend,
    "Concat": _concat,
    "Split": _split,
}
