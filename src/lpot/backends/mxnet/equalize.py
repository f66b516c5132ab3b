"""Even out the channels between two layers, without changing what the network computes.

Behind a ReLU, a PReLU or a pooling a channel may be divided by a factor if the weights that read it
are multiplied by the same. Factors are powers of two: no float result changes by a bit, while one
scale for all channels fits far better.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np

from lpot.backends.mxnet.abilities import COMPUTE
from lpot.backends.mxnet.graph import Draft, Entry, Graph, Node
from lpot.backends.mxnet.network import Network
from lpot.backends.mxnet.runtime import CPU, mx
from lpot.core.ptq.equalize import channel_scales

HOMOGENEOUS = {"Activation": ("relu",), "LeakyReLU": ("leaky", "prelu")}
POOLS = ("max", "avg")
CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")
SPREAD = 3.0  # a batch norm's output stays within so many gammas of its beta, nearly always
GAMMA, BETA = 1, 2  # where a batch norm keeps them

Values = Callable[[str], np.ndarray]


@dataclass(frozen=True)
class Pair:
    """Two layers with nothing but `norm` and ops that let positive factors through between."""

    first: Node
    second: Node
    norm: Node | None


def equalize(network: Network) -> Network:
    """The same function, with its channels evened out where that pays."""
    graph = Graph.of(network.symbol)
    params = {**network.args, **network.auxs}
    changed: dict[str, np.ndarray] = {}

    def value(name: str) -> np.ndarray:
        return changed[name] if name in changed else params[name].asnumpy()

    freed = set()
    for pair in find_pairs(graph, params):
        reads = _reads(graph, pair, value)
        makes = _makes(graph, pair, value)
        sound = makes.shape == reads.shape and np.isfinite([makes, reads]).all()
        scales = channel_scales(makes, reads) if sound else None
        if scales is not None:
            changed.update(_scaled(graph, pair, scales, value))
            freed |= {pair.norm.name} if pair.norm is not None else set()
    if not changed:
        return network
    more = {name: mx.nd.array(array, ctx=CPU, dtype=array.dtype) for name, array in changed.items()}
    return network.around(_free_gammas(network.symbol, freed), more)


def find_pairs(graph: Graph, params: Collection[str]) -> Iterator[Pair]:
    """Each two layers that follow each other, whose parameters nobody shares."""
    readers = _data_readers(graph)
    for number, first in enumerate(graph.nodes):
        if first.kind not in COMPUTE or not _is_plain(first):
            continue
        norm, entry = None, (number, 0)
        while (following := readers.get(entry)) is not None:
            node = graph.nodes[following]
            if node.kind == "BatchNorm" and norm is None and entry == (number, 0):
                norm = node
            elif node.kind in COMPUTE:
                if _is_plain(node) and _owned(graph, (first, norm, node), params):
                    yield Pair(first, node, norm)
                break
            elif not _lets_through(node):
                break
            entry = (following, 0)


def _data_readers(graph: Graph) -> dict[Entry, int]:
    """Tensor → the one op that takes it as its data, where nobody else looks at it."""
    uses: dict[Entry, list[tuple[int, int]]] = {}
    for number, node in enumerate(graph.nodes):
        for place, entry in enumerate(node.inputs):
            uses.setdefault(entry, []).append((number, place))
    alone = {entry: found[0] for entry, found in uses.items() if len(found) == 1}
    return {
        entry: number
        for entry, (number, place) in alone.items()
        if place == 0 and entry not in graph.heads
    }


def _is_plain(node: Node) -> bool:
    """Channels are the weight's first axis, and either all or one of them are read by each."""
    if node.kind != "Convolution":
        return True
    groups = int(node.attrs.get("num_group", 1))
    return node.attrs.get("layout") not in CHANNELS_LAST and groups in (1, _width(node))


def _width(node: Node) -> int:
    return int(node.attrs["num_filter" if node.kind == "Convolution" else "num_hidden"])


def _is_depthwise(node: Node) -> bool:
    return node.kind == "Convolution" and int(node.attrs.get("num_group", 1)) > 1


def _lets_through(node: Node) -> bool:
    if node.kind == "Pooling":
        return node.attrs.get("pool_type", "max") in POOLS
    return node.attrs.get("act_type", "leaky") in HOMOGENEOUS.get(node.kind, ())


def _owned(graph: Graph, nodes: tuple[Node | None, ...], params: Collection[str]) -> bool:
    """Have all of these layers' parameters a known value, and no second reader?"""
    names = [
        graph.producer(entry).name
        for node in nodes
        if node is not None
        for entry in node.inputs[1:]
    ]
    return all(name in params and len(graph.readers[name]) == 1 for name in names)


def _param(graph: Graph, node: Node, place: int, value: Values) -> np.ndarray:
    return value(graph.producer(node.inputs[place]).name)


def _makes(graph: Graph, pair: Pair, value: Values) -> np.ndarray:
    """How far each channel reaches behind the first layer."""
    if pair.norm is not None:
        gamma, beta = (_param(graph, pair.norm, place, value) for place in (GAMMA, BETA))
        spread = np.ones_like(gamma) if _is_fixed(pair.norm) else np.abs(gamma)
        return np.abs(beta) + SPREAD * spread
    places = range(1, len(pair.first.inputs))  # weight, and bias where there is one
    params = [np.abs(_param(graph, pair.first, place, value)) for place in places]
    return np.max([param.reshape(len(param), -1).max(axis=1) for param in params], axis=0)


def _reads(graph: Graph, pair: Pair, value: Values) -> np.ndarray:
    """How much the second layer makes of each channel."""
    if _is_depthwise(pair.second):
        # Its weights have a scale for each channel: any factor suits them, so the first one rules.
        makes = _makes(graph, pair, value)
        return np.divide(1.0, makes, out=np.zeros_like(makes), where=makes > 0)
    weight = np.abs(_param(graph, pair.second, 1, value))
    return weight.max(axis=tuple(axis for axis in range(weight.ndim) if axis != 1))


def _scaled(graph: Graph, pair: Pair, scales: np.ndarray, value: Values) -> dict[str, np.ndarray]:
    """The parameters with each channel divided before, and multiplied behind."""
    changed = {}
    maker = pair.norm or pair.first
    for place in (1, 2):
        if place < len(maker.inputs):
            name = graph.producer(maker.inputs[place]).name
            before = value(name)
            if pair.norm is not None and place == GAMMA and _is_fixed(pair.norm):
                before = np.ones_like(before)
            changed[name] = before / _along(scales, before, 0)
    reader = graph.producer(pair.second.inputs[1]).name
    weight = value(reader)
    changed[reader] = weight * _along(scales, weight, 0 if _is_depthwise(pair.second) else 1)
    return changed


def _along(scales: np.ndarray, array: np.ndarray, axis: int) -> np.ndarray:
    """The factors, to be multiplied with an array along one of its axes, in its own type."""
    shape = [-1 if index == axis else 1 for index in range(array.ndim)]
    return scales.reshape(shape).astype(array.dtype)


def _is_fixed(norm: Node) -> bool:
    """MXNet ignores gamma unless it is told not to."""
    return norm.attrs.get("fix_gamma", "True") not in ("False", "false", "0")


def _free_gammas(symbol: mx.sym.Symbol, names: Collection[str]) -> mx.sym.Symbol:
    """These batch norms use their gamma from now on."""
    draft = Draft(symbol)
    for node in draft.nodes:
        if node["op"] == "BatchNorm" and node["name"] in names:
            node["attrs"] = {**node.get("attrs", {}), "fix_gamma": "False"}
    return draft.symbol()
