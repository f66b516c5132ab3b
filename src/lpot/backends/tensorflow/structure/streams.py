"""Which tensors share their channels, which compute ops make these and which read them.

Channels lie on the last axis. Those that nothing but compute ops and links touches may be scaled
freely, each by its own factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.affine import (
    COMPUTE,
    is_float32,
    is_nhwc,
    output_channels,
    rank_of,
)
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import SUMS
from lpot.backends.tensorflow.structure.match import why_not
from lpot.backends.tensorflow.structure.nodes import data_inputs
from lpot.core.ptq.streams import Channels, Stream, Ties

Known = dict[str, Channels]


@dataclass(frozen=True)
class Link:
    """What an op makes of its channels. `parts`: input, and where it begins in the output."""

    made: Channels
    parts: tuple[tuple[str, int], ...]
    bias: bool = False  # its second input is a constant that is added


def find_streams(net: Net) -> list[Stream]:
    ties, known = Ties(net.keep), Known()
    for name in net.order:
        node = net.nodes[name]
        inputs = data_inputs(node)
        read = [item for item in dict.fromkeys(inputs) if item in known]
        closed = name in net.in_loop or name in net.in_branch
        if node.op in COMPUTE and not closed and not why_not(net, node):
            _compute(net, node, ties, known)
            continue
        find = None if closed or not read or not is_nhwc(node) else _LINKS.get(node.op)
        link = None if find is None else find(net, node, known)
        if link is None:
            ties.fix(read)
            continue
        known[name] = link.made
        ties.know(name, link.made.width)
        tied = {item for item, _ in link.parts}
        ties.fix(item for item in read if item not in tied)
        for item, start in link.parts:
            ties.tie(item, name, start)
        if link.bias:
            ties.add(name, name)
    return ties.streams()


def _compute(net: Net, node: NodeDef, ties: Ties, known: Known) -> None:
    x, *others = data_inputs(node)
    weight = net.constant(others[0])
    assert weight is not None
    if known.get(x) == Channels.last(_inputs_of(node, weight), rank_of(node)):
        ties.read(node.name, x)
    elif x in known:
        ties.fix([x])
    known[node.name] = Channels.last(output_channels(node, weight), rank_of(node))
    ties.make(node.name, node.name, known[node.name].width)


def _inputs_of(node: NodeDef, weight: np.ndarray) -> int:
    if node.op != "MatMul":
        return int(weight.shape[2])
    return int(weight.size // output_channels(node, weight))


def _same(net: Net, node: NodeDef, known: Known) -> Link | None:
    name = data_inputs(node)[0]
    return Link(known[name], ((name, 0),)) if name in known else None


def _sum(net: Net, node: NodeDef, known: Known) -> Link | None:
    inputs = data_inputs(node)
    constants = [name for name in inputs if net.is_constant(name)]
    if constants:
        value = net.constant(inputs[-1])
        if len(inputs) != 2 or value is None or inputs[0] not in known:
            return None
        made = known[inputs[0]]
        fits = value.size == made.width == value.shape[-1] if value.ndim else False
        fits = fits and value.ndim <= made.rank and value.dtype == np.float32
        return Link(made, ((inputs[0], 0),), bias=True) if fits else None
    kinds = {known.get(name) for name in inputs}
    made_of = kinds.pop()
    if kinds or made_of is None:
        return None
    return Link(made_of, tuple((name, 0) for name in dict.fromkeys(inputs)))


def _pool(net: Net, node: NodeDef, known: Known) -> Link | None:
    sizes = [*node.attr["ksize"].list.i, *node.attr["strides"].list.i]
    whole = all(sizes[index] == 1 for index in (0, 3, 4, 7))
    return _same(net, node, known) if whole else None


def _mean(net: Net, node: NodeDef, known: Known) -> Link | None:
    name, given = data_inputs(node)[:2]
    axes = net.constant(given)
    if name not in known or axes is None:
        return None
    before = known[name]
    gone = {int(axis) % before.rank for axis in axes.reshape(-1)}
    if before.rank - 1 in gone:
        return None
    kept = "keep_dims" in node.attr and node.attr["keep_dims"].b
    return Link(Channels.last(before.width, before.rank - (0 if kept else len(gone))), ((name, 0),))


def _squeeze(net: Net, node: NodeDef, known: Known) -> Link | None:
    name = data_inputs(node)[0]
    gone = list(node.attr["squeeze_dims"].list.i) if "squeeze_dims" in node.attr else []
    if name not in known or not gone:
        return None
    before = known[name]
    if before.rank - 1 in {axis % before.rank for axis in gone}:
        return None
    return Link(Channels.last(before.width, before.rank - len(gone)), ((name, 0),))


def _reshape(net: Net, node: NodeDef, known: Known) -> Link | None:
    """What leaves the last axis as it is."""
    name, shape = data_inputs(node)[0], net.shape(node.name)
    if name not in known or not shape or shape[-1] != known[name].width:
        return None
    return Link(Channels.last(known[name].width, len(shape)), ((name, 0),))


def _pad(net: Net, node: NodeDef, known: Known) -> Link | None:
    """Zeros stay zeros; on the last axis they are channels that no factor changes."""
    name, *given = data_inputs(node)
    amounts = net.constant(given[0])
    value = net.constant(given[1]) if len(given) > 1 else np.zeros(())
    if name not in known or amounts is None or value is None or value.any():
        return None
    before = known[name]
    if amounts.shape != (before.rank, 2):
        return None
    first, last = (int(amount) for amount in amounts[-1])
    return Link(Channels.last(before.width + first + last, before.rank), ((name, first),))


def _slice(net: Net, node: NodeDef, known: Known) -> Link | None:
    """Fewer places of a picture: the last axis must be whole."""
    name, *given = data_inputs(node)
    begin, strides = net.constant(given[0]), net.constant(given[2])
    masks = {
        word: int(node.attr[f"{word}_mask"].i) if f"{word}_mask" in node.attr else 0
        for word in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    if name not in known or begin is None or strides is None:
        return None
    if masks["ellipsis"] or masks["new_axis"] or masks["shrink_axis"]:
        return None
    last = known[name].rank - 1
    named = begin.size > last
    whole = masks["begin"] & masks["end"] & (1 << last) and strides[-1] == 1 if named else True
    return Link(known[name], ((name, 0),)) if whole else None


def _concat(net: Net, node: NodeDef, known: Known) -> Link | None:
    *names, given = data_inputs(node)
    axis, parts = net.constant(given), [known.get(name) for name in names]
    first = parts[0]
    if axis is None or first is None or any(p is None or p.rank != first.rank for p in parts):
        return None
    widths = [part.width for part in parts if part is not None]
    if int(axis) % first.rank != first.rank - 1:
        same = len(set(widths)) == 1
        return Link(first, tuple((name, 0) for name in dict.fromkeys(names))) if same else None
    starts = [sum(widths[:index]) for index in range(len(widths))]
    made = Channels.last(sum(widths), first.rank)
    return Link(made, tuple(zip(names, starts, strict=True)))


def _gate(net: Net, node: NodeDef, known: Known) -> Link | None:
    """One side carries the channels, the other is left as it is."""
    inputs = data_inputs(node)
    carried = [name for name in inputs if name in known]
    if len(carried) != 1 or len(set(inputs)) != 2 or not is_float32(node):
        return None
    (other,) = (name for name in inputs if name != carried[0])
    shape = net.shape(carried[0])
    if net.is_constant(other) or shape is None or net.shape(node.name) != shape:
        return None
    return Link(known[carried[0]], ((carried[0], 0),))


_LINKS: dict[str, Callable[[Net, NodeDef, Known], Link | None]] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "Identity"), _same),
    **dict.fromkeys((*SUMS, "BiasAdd"), _sum),
    **dict.fromkeys(("MaxPool", "AvgPool"), _pool),
    **dict.fromkeys(("Pad", "PadV2"), _pad),
    "Mean": _mean,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "StridedSlice": _slice,
    "ConcatV2": _concat,
    "Mul": _gate,
}
