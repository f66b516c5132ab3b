"""Which layers share their channels, read from captured graphs: sums, joins and shortcuts, too."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from lpot.backends.torch.kinds import Layer, is_hf_conv1d
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.passes.find_chains import Chain, is_relu, norm_of
from lpot.core.ptq.streams import Channels, Stream, Ties

# What lets a positive factor through, channel by channel.
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Dropout2d, nn.Upsample, nn.PReLU)
_PLAIN = (nn.Dropout, nn.Identity, nn.LeakyReLU)
_POOL_FUNCTIONS = (
    functional.max_pool2d,
    functional.avg_pool2d,
    functional.adaptive_avg_pool2d,
    functional.interpolate,
)
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_PRODUCTS = (operator.mul, torch.mul, "mul")
_MEANS = (torch.mean, "mean")
_FLATS = (torch.flatten, "flatten")


Known = dict[fx.Node, Channels]
Found = tuple[Channels, tuple[tuple[fx.Node, int], ...]] | None  # what is made, and of which parts


def _channels(width: int, rank: int = 0) -> Channels:
    """On axis 1 of `rank`, or on the last axis where the rank is 0: not known."""
    return Channels((1,) if rank else (-1,), rank, width)


def find_streams(
    captured: Capture,
    chains: Mapping[str, Chain],
    layers: Mapping[str, Layer],
    modules: Mapping[str, nn.Module],
) -> list[Stream]:
    """The streams of a part. What goes in and out of it is fixed."""
    tied = Counter(id(tensor) for part in modules.values() for tensor in part._parameters.values())
    firsts = {
        chain.first: name
        for name, chain in chains.items()
        if is_layer(layers[name], tied) and _has_scale(modules, chain.norm)
    }
    norms = {chains[name].norm: name for name in firsts.values()}
    ties, known = Ties(), Known()
    for node in captured.graph.nodes:
        read = [item for item in node.all_input_nodes if item in known]
        if node in firsts:
            name = firsts[node]
            module: Any = layers[name].module
            _read(ties, known, node, name, module)
            if chains[name].norm is None:
                _make(ties, known, node, name, module)
            continue
        norm = norm_of(captured, node, modules)
        if norm is not None and norm in norms and node.args[:1] == (chains[norms[norm]].first,):
            _make(ties, known, node, norms[norm], layers[norms[norm]].module)
            continue
        found = _link(captured, node, modules, known) if read else None
        if found is None:
            ties.fix(read)
            continue
        known[node], parts = found
        ties.know(node, known[node].width)
        ties.fix(item for item in read if item not in {part for part, _ in parts})
        for part, start in parts:
            ties.tie(part, node, start)
    return ties.streams()


def is_layer(layer: Layer, tied: Mapping[int, int]) -> bool:
    """Weights of its own: a tied one can't be scaled for one op alone."""
    module = layer.module
    if type(module) not in _LAYERS or is_hf_conv1d(module) or layer.norm is not None:
        return False
    own = [tensor for tensor in module._parameters.values() if tensor is not None]
    return all(tied[id(tensor)] == 1 and bool(torch.isfinite(tensor).all()) for tensor in own)


def _has_scale(modules: Mapping[str, nn.Module], norm: str | None) -> bool:
    return norm is None or modules[norm]._parameters.get("weight") is not None


def reading(module: Any, weight: torch.Tensor) -> torch.Tensor:
    """A weight as (channels it reads, everything else)."""
    groups = getattr(module, "groups", 1)
    outputs, inputs = weight.shape[:2]
    split = weight.reshape(groups, outputs // groups, inputs, -1)
    return split.transpose(1, 2).reshape(groups * inputs, -1)


def _rank(module: Any) -> int:
    return 0 if type(module) is nn.Linear else int(module.weight.dim())


def _read(ties: Ties, known: Known, node: fx.Node, name: str, module: Any) -> None:
    groups = getattr(module, "groups", 1)
    wanted = _channels(module.weight.shape[1] * groups, _rank(module))
    for item in node.all_input_nodes:
        if known.get(item) == wanted and node.args[:1] == (item,):
            ties.read(name, item)
        elif item in known:
            ties.fix([item])


def _make(ties: Ties, known: Known, node: fx.Node, name: str, module: Any) -> None:
    known[node] = _channels(int(module.weight.shape[0]), _rank(module))
    ties.make(name, node, known[node].width)


def _link(
    captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module], known: Known
) -> Found:
    first = node.args[0] if node.args else None
    if is_relu(captured, node, modules):
        return _same(first, known)
    if node.op == "call_module":
        kind = type(modules[captured.targets[str(node.target)]])
        pictures = isinstance(first, fx.Node) and first in known and known[first].rank > 0
        passes = kind in _PLAIN or (kind in _POOLS and pictures)
        if kind is nn.Flatten:
            module: Any = modules[captured.targets[str(node.target)]]
            return _flat(first, known) if (module.start_dim, module.end_dim) == (1, -1) else None
        return _same(first, known) if passes else None
    for targets, find in _LINKS:
        if node.op in ("call_function", "call_method") and node.target in targets:
            return find(node, known)
    return None


def _same(item: Any, known: Known) -> Found:
    return (known[item], ((item, 0),)) if isinstance(item, fx.Node) and item in known else None


def _pool(node: fx.Node, known: Known) -> Found:
    found = _same(node.args[0], known)
    return found if found is not None and found[0].rank else None


def _plain(node: fx.Node, known: Known) -> Found:
    return _same(node.args[0], known)


def _sum(node: fx.Node, known: Known) -> Found:
    parts = [item for item in node.args if isinstance(item, fx.Node)]
    kinds = {known.get(item) for item in parts}
    made = kinds.pop() if len(kinds) == 1 else None
    if made is None or len(node.args) != 2 or len(parts) != 2 or node.kwargs:
        return None
    return made, tuple((item, 0) for item in dict.fromkeys(parts))


def _gate(node: fx.Node, known: Known) -> Found:
    """One side carries the channels, the other is left as it is."""
    parts = [item for item in node.args if isinstance(item, fx.Node)]
    carried = [item for item in parts if item in known]
    if len(parts) != 2 or len(carried) != 1 or not known[carried[0]].rank:
        return None
    return known[carried[0]], ((carried[0], 0),)


def _cat(node: fx.Node, known: Known) -> Found:
    items: Any = node.args[0]
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    parts = [known.get(item) for item in items] if isinstance(items, list | tuple) else []
    first = parts[0] if parts else None
    if first is None or any(part is None or part.rank != first.rank for part in parts):
        return None
    if axis != (1 if first.rank else -1):
        return None
    widths = [part.width for part in parts if part is not None]
    starts = [sum(widths[:index]) for index in range(len(widths))]
    return _channels(sum(widths), first.rank), tuple(zip(items, starts, strict=True))


def _pad(node: fx.Node, known: Known) -> Found:
    """Zeros stay zeros; among the channels they are further ones, which no factor changes."""
    given: list[Any] = [*node.args, *node.kwargs.values()]
    item, amounts, *rest = given
    if not isinstance(item, fx.Node) or item not in known or not known[item].rank:
        return None
    plain = isinstance(amounts, list | tuple) and all(type(one) is int for one in amounts)
    if not plain or any(one not in ("constant", None, 0, 0.0) for one in rest):
        return None
    before = known[item]
    place = 2 * (before.rank - 2)  # pads are told from the last axis on
    here = list(amounts[place : place + 2]) or [0, 0]
    if min(here) < 0 or len(amounts) > place + 2:
        return None
    return _channels(before.width + sum(here), before.rank), ((item, here[0]),)


def _slice(node: fx.Node, known: Known) -> Found:
    """Fewer places of a picture."""
    item, spots = node.args
    if not isinstance(item, fx.Node) or item not in known or not known[item].rank:
        return None
    if not isinstance(spots, tuple) or not all(isinstance(spot, slice) for spot in spots):
        return None
    whole = len(spots) < 2 or spots[1] == slice(None)
    return _same(item, known) if whole else None


def _mean(node: fx.Node, known: Known) -> Found:
    item, *rest = node.args
    axes: Any = rest[0] if rest else node.kwargs.get("dim")
    kept = rest[1] if len(rest) > 1 else node.kwargs.get("keepdim", False)
    if not isinstance(item, fx.Node) or item not in known or not isinstance(axes, list | tuple):
        return None
    before = known[item]
    if not before.rank or {axis % before.rank for axis in axes} != set(range(2, before.rank)):
        return None
    return (before if kept else _channels(before.width)), ((item, 0),)


def _flat(item: Any, known: Known) -> Found:
    """Of pictures of one place each: a reader of another size would not fit."""
    found = _same(item, known)
    return None if found is None or not found[0].rank else (_channels(found[0].width), found[1])


def _flatten(node: fx.Node, known: Known) -> Found:
    item, *rest = node.args
    return _flat(item, known) if rest == [1] and not node.kwargs else None


_LINKS: tuple[tuple[tuple[Any, ...], Callable[[fx.Node, Known], Found]], ...] = (
    (_SUMS, _sum),
    (_PRODUCTS, _gate),
    (_POOL_FUNCTIONS, _pool),
    ((functional.leaky_relu,), _plain),
    (_MEANS, _mean),
    (_FLATS, _flatten),
    ((torch.cat,), _cat),
    ((functional.pad,), _pad),
    ((operator.getitem,), _slice),
)
