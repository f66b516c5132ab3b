"""Cross-layer equalization between two layers, without changing what the network computes.

Behind a ReLU, a PReLU or a pooling a channel may be divided by a factor if the weights that read it
are multiplied by the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.backends.mxnet.abilities import COMPUTE
from lpot.backends.mxnet.graph import Draft, Entry, Graph, Node
from lpot.backends.mxnet.network import Network
from lpot.backends.mxnet.runtime import CPU, mx
from lpot.core.ptq.equalize import Layers
from lpot.core.ptq.equalize import equalize as equalize_layers
from lpot.core.ptq.streams import Stream

HOMOGENEOUS = {"Activation": ("relu",), "LeakyReLU": ("leaky", "prelu")}
POOLS = ("max", "avg")
CHANNELS_LAST = ("NWC", "NHWC", "NDHWC")
SPREAD = 3.0  # a batch norm's output stays within so many gammas of its beta, nearly always
GAMMA, BETA = 1, 2  # where a batch norm keeps them


@dataclass(frozen=True)
class Pair:
    """Two layers with nothing but `norm` and ops that let positive factors through between."""

    first: Node
    second: Node
    norm: Node | None


def equalize(network: Network) -> Network:
    """The same function, with its channels equalized where that pays."""
    graph = Graph.of(network.symbol)
    params = {**network.args, **network.auxs}
    pairs = list(find_pairs(graph, params))
    layers = _Layers(graph, pairs, params)
    pairs = [pair for pair in pairs if layers.fits(pair)]
    streams = [
        Stream(_width(pair.first), ((pair.first.name, 0),), ((pair.second.name, 0),))
        for pair in pairs
    ]
    found = [pairs[number] for number in equalize_layers(streams, layers)]
    if not found:
        return network
    more = {
        name: mx.nd.array(array, ctx=CPU, dtype=array.dtype)
        for name, array in layers.changed.items()
    }
    freed = {pair.norm.name for pair in found if pair.norm is not None}
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


class _Layers(Layers):
    """Parameters as they were, and those that were scaled since."""

    def __init__(self, graph: Graph, pairs: Sequence[Pair], params: Mapping[str, Any]) -> None:
        self._graph, self._params = graph, params
        self._makers = {pair.first.name: pair for pair in pairs}
        self._readers = {pair.second.name: pair for pair in pairs}
        self.changed: dict[str, np.ndarray] = {}

    def fits(self, pair: Pair) -> bool:
        """Does the second layer read the channels themselves, and not what was flattened?"""
        return self.made(pair.first.name).shape == self.read(pair.second.name).shape

    def _name(self, node: Node, place: int) -> str:
        return self._graph.producer(node.inputs[place]).name

    def _value(self, node: Node, place: int) -> np.ndarray:
        name = self._name(node, place)
        if name in self.changed:
            return self.changed[name]
        value: np.ndarray = self._params[name].asnumpy()
        fixed = node.kind == "BatchNorm" and place == GAMMA and _is_fixed(node)
        return np.ones_like(value) if fixed else value

    def made(self, op: str) -> np.ndarray:
        """How far each channel reaches behind the layer."""
        pair = self._makers[op]
        if pair.norm is not None:
            gamma, beta = (np.abs(self._value(pair.norm, place)) for place in (GAMMA, BETA))
            return np.asarray(beta + SPREAD * gamma)
        places = range(1, len(pair.first.inputs))  # weight, and bias where there is one
        params = [np.abs(self._value(pair.first, place)) for place in places]
        peaks = [param.reshape(len(param), -1).max(axis=1) for param in params]
        return np.asarray(np.max(peaks, axis=0))

    def read(self, op: str) -> np.ndarray:
        """How much the layer makes of each channel."""
        pair = self._readers[op]
        if _is_depthwise(pair.second):
            # Its weights have a scale for each channel: any factor suits them, so the maker rules.
            makes = self.made(pair.first.name)
            return np.asarray(np.divide(1.0, makes, out=np.zeros_like(makes), where=makes > 0))
        weight = np.abs(self._value(pair.second, 1))
        return np.asarray(weight.max(axis=tuple(at for at in range(weight.ndim) if at != 1)))

    def divide_made(self, op: str, factors: np.ndarray) -> None:
        maker = self._makers[op].norm or self._makers[op].first
        for place in (1, 2):
            if place < len(maker.inputs):
                before = self._value(maker, place)
                self.changed[self._name(maker, place)] = before / _along(factors, before, 0)

    def multiply_read(self, op: str, factors: np.ndarray) -> None:
        node = self._readers[op].second
        weight, axis = self._value(node, 1), 0 if _is_depthwise(node) else 1
        self.changed[self._name(node, 1)] = weight * _along(factors, weight, axis)


def _along(scales: np.ndarray, array: np.ndarray, axis: int) -> np.ndarray:
    """The factors, to be multiplied with an array along one of its axes, in its own type."""
    shape = [-1 if index == axis else 1 for index in range(array.ndim)]
    return np.asarray(scales.reshape(shape), array.dtype)


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
