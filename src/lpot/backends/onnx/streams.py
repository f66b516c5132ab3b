"""Which tensors share their channels, which layers make these and which read them.

Channels that nothing but layers and links touches may be scaled freely, each by its own factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, reads
from lpot.backends.onnx.layers import Layer, layer_of, made_by, read_by
from lpot.backends.onnx.links import Link, link
from lpot.core.ptq.streams import Channels, Stream, Ties


@dataclass(frozen=True, eq=False)
class Found:
    """The streams that may be scaled; their layers by node name, and how each sees what it reads:
    flattened channels have many entries each."""

    streams: list[Stream]
    layers: Mapping[str, Layer]
    views: Mapping[str, Channels]


def find_streams(graph: Graph) -> Found:
    finder = _Finder(graph)
    for node in graph.nodes:
        finder.visit(node)
    return Found(finder.ties.streams(), finder.layers, finder.views)


class _Finder:
    """Ties tensors to streams, node by node; those that something else touches are fixed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ties = Ties(graph.outputs)
        self.layers: dict[str, Layer] = {}
        self.views: dict[str, Channels] = {}
        self.channels: dict[str, Channels] = {}

    def visit(self, node: NodeProto) -> None:
        read = [name for name in dict.fromkeys(reads(node)) if name in self.channels]
        layer = layer_of(self.graph, node)
        if layer is not None:
            self._layer(layer, read)
            return
        known: Mapping[str, Channels] = self.channels
        if node.op_type == "Mul":  # carries the first side that nothing has fixed so far
            known = {name: self.channels[name] for name in read if self.ties.is_free(name)}
        found = link(self.graph, node, known) if read else None
        if found is None:
            self.ties.fix(read)
        else:
            self._tie(found, read)

    def _layer(self, layer: Layer, read: Iterable[str]) -> None:
        name = layer.node.name
        for tensor in read:
            channels = self.channels[tensor]
            fits = layer.reads is not None and channels.axes == (layer.reads,)
            entries = channels.outer * channels.width * channels.inner
            if fits and tensor == layer.active and self._reads(layer) == entries:
                self.ties.read(name, tensor)
                self.layers[name], self.views[name] = layer, channels
            else:
                self.ties.fix([tensor])
        made = layer.node.output[0]
        shape = self.graph.shapes.get(made)
        if layer.makes is not None and shape is not None:
            width = len(made_by(self.graph.weights, layer))
            self.layers[name] = layer
            self.channels[made] = Channels((layer.makes,), len(shape), width)
            self.ties.make(name, made, width)

    def _reads(self, layer: Layer) -> int:
        return len(read_by(self.graph.weights, layer))

    def _tie(self, found: Link, read: Iterable[str]) -> None:
        self.channels.update(found.outputs)
        for name, channels in found.outputs.items():
            self.ties.know(name, channels.width)
        tied = {name for pair in found.pairs for name in pair[:2]}
        self.ties.fix(name for name in read if name not in tied)
        for part, whole, start in found.pairs:
            self.ties.tie(part, whole, start)
        if found.bias:
            self.ties.add(found.bias, next(iter(found.outputs)))
