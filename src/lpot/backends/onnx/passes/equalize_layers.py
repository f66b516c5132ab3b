"""Cross-layer equalization of channels that were torn apart: FP32 results stay bit for bit."""

from __future__ import annotations

import numpy as np

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.layers import made_by, read_by, scale_made, scale_read
from lpot.backends.onnx.streams import Found, find_streams
from lpot.core.ptq.equalize import Layers, equalize


def equalize_layers(graph: Graph) -> Graph:
    found = find_streams(graph)
    layers = _Layers(graph, found)
    changed = equalize(found.streams, layers)
    return graph.replaced(graph.nodes, layers.weights) if changed else graph


class _Layers(Layers):
    def __init__(self, graph: Graph, found: Found) -> None:
        self.weights = dict(graph.weights)
        self._layers, self._views = found.layers, found.views

    def made(self, op: str) -> np.ndarray:
        return made_by(self.weights, self._layers[op])

    def read(self, op: str) -> np.ndarray:
        view, entries = self._views[op], read_by(self.weights, self._layers[op])
        largest: np.ndarray = entries.reshape(view.outer, view.width, view.inner).max(axis=(0, 2))
        return largest

    def divide_made(self, op: str, factors: np.ndarray) -> None:
        scale_made(self.weights, self._layers[op], (1 / factors).astype(np.float32))

    def multiply_read(self, op: str, factors: np.ndarray) -> None:
        view = self._views[op]
        entries = np.tile(factors.repeat(view.inner), view.outer)
        scale_read(self.weights, self._layers[op], entries.astype(np.float32))

    def added(self, op: str) -> np.ndarray:
        """A constant, told by its own name."""
        return np.asarray(np.abs(self.weights[op]).reshape(-1))

    def divide_added(self, op: str, factors: np.ndarray) -> None:
        part = factors.astype(np.float32).reshape(self.weights[op].shape)
        self.weights[op] = self.weights[op] / part
