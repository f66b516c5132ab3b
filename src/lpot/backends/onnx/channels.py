"""Which tensors share their channels, which layers make these and which read them.

Channels that nothing but layers and links touches may be scaled freely, each by its own factor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, reads
from lpot.backends.onnx.layers import Layer, layer_of, made_by, read_by
from lpot.backends.onnx.links import Channels, Link, link


@dataclass(frozen=True, eq=False)
class ChannelGroup:
    """So many channels; layers and added constants with the channel at which each begins.

    Readers come with the channels as they see them: flattened ones have many entries each.
    """

    size: int
    makers: tuple[tuple[Layer, int], ...]
    readers: tuple[tuple[Layer, int, Channels], ...]
    biases: tuple[tuple[str, int], ...]


def channel_groups(graph: Graph) -> list[ChannelGroup]:
    """The groups that may be scaled, each with at least one maker and one reader."""
    finder = _Finder(graph)
    for node in graph.nodes:
        finder.visit(node)
    return finder.groups()


class _Finder:
    """Ties tensors to groups, node by node; those that something else touches are fixed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.channels: dict[str, Channels] = {}
        self.fixed: set[str] = set(graph.outputs)
        self.makers: list[tuple[Layer, str]] = []
        self.readers: list[tuple[Layer, str]] = []
        self.biases: list[tuple[str, str]] = []
        self._parent: dict[str, tuple[str, int]] = {}  # tensor → the one it is part of, and where

    def visit(self, node: NodeProto) -> None:
        read = [name for name in dict.fromkeys(reads(node)) if name in self.channels]
        layer = layer_of(self.graph, node)
        if layer is not None:
            self._layer(layer, read)
            return
        known = self._free(read) if node.op_type == "Mul" else self.channels
        found = link(self.graph, node, known) if read else None
        if found is None:
            self.fixed.update(read)
        else:
            self._tie(found, read)

    def _free(self, names: Iterable[str]) -> dict[str, Channels]:
        """Those of the tensors that nothing has fixed so far."""
        fixed = {self._place(name)[0] for name in self.fixed}
        return {name: self.channels[name] for name in names if self._place(name)[0] not in fixed}

    def _layer(self, layer: Layer, read: Iterable[str]) -> None:
        for name in read:
            channels = self.channels[name]
            fits = layer.reads is not None and channels.axes == (layer.reads,)
            entries = channels.outer * channels.width * channels.inner
            if fits and name == layer.active and self._reads(layer) == entries:
                self.readers.append((layer, name))
            else:
                self.fixed.add(name)
        made = layer.node.output[0]
        shape = self.graph.shapes.get(made)
        if layer.makes is not None and shape is not None:
            width = len(made_by(self.graph.weights, layer))
            self.channels[made] = Channels((layer.makes,), len(shape), width)
            self.makers.append((layer, made))

    def _reads(self, layer: Layer) -> int:
        return len(read_by(self.graph.weights, layer))

    def _tie(self, found: Link, read: Iterable[str]) -> None:
        self.channels.update(found.outputs)
        tied = {name for pair in found.pairs for name in pair[:2]}
        self.fixed.update(name for name in read if name not in tied)
        for part, whole, start in found.pairs:
            self._unite(part, whole, start)
        if found.bias:
            self.biases.append((found.bias, next(iter(found.outputs))))

    def _unite(self, part: str, whole: str, start: int) -> None:
        (first, here), (second, there) = self._place(part), self._place(whole)
        if first != second:
            self._parent[first] = (second, there + start - here)
        elif here != there + start:  # one tensor at two places, as Concat(x, x) has it
            self.fixed.add(part)

    def _place(self, name: str) -> tuple[str, int]:
        """The tensor that stands for the group, and where this one begins in it."""
        start = 0
        while name in self._parent:
            name, step = self._parent[name]
            start += step
        return name, start

    def groups(self) -> list[ChannelGroup]:
        fixed = {self._place(name)[0] for name in self.fixed}
        spans: dict[str, tuple[int, int]] = {}
        for name, channels in self.channels.items():
            root, start = self._place(name)
            low, high = spans.get(root, (start, start))
            spans[root] = min(low, start), max(high, start + channels.width)
        found = [self._group(root, *span) for root, span in spans.items() if root not in fixed]
        return [group for group in found if group.makers and group.readers]

    def _group(self, root: str, low: int, high: int) -> ChannelGroup:
        def layers(placed: list[tuple[Layer, str]]) -> tuple[tuple[Layer, int], ...]:
            where = [(layer, *self._place(name)) for layer, name in placed]
            return tuple((layer, start - low) for layer, of, start in where if of == root)

        def reader(layer: Layer, name: str) -> tuple[Layer, int, Channels] | None:
            of, start = self._place(name)
            return (layer, start - low, self.channels[name]) if of == root else None

        readers = tuple(found for placed in self.readers if (found := reader(*placed)))
        where = [(bias, *self._place(name)) for bias, name in self.biases]
        biases = tuple((bias, start - low) for bias, of, start in where if of == root)
        return ChannelGroup(high - low, layers(self.makers), readers, biases)
