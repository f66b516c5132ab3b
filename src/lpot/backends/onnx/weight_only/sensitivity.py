"""What each op does to the answer in each format: the KL divergence of the logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import input_specs
from lpot.backends.onnx.weight_only.formats import label
from lpot.backends.onnx.weight_only.segments import (
    Piece,
    Segment,
    Tensors,
    cut,
    entered,
    passed_on,
    piece,
    whole,
)
from lpot.backends.onnx.weight_only.store import WeightStore
from lpot.core.batch import Inputs
from lpot.core.inputs import by_name
from lpot.core.progress import tracked
from lpot.core.ptq.distance import distance
from lpot.core.recipe import OpConfig

POSITIONS = 64  # of the probe whose answers are compared
LOGITS = "logits"
TOKENS = 128  # of a window that are read

Formats = Mapping[str, Sequence[OpConfig]]  # node → its low formats


def format_errors(
    graph: Graph, formats: Formats, probe: Inputs, store: WeightStore
) -> dict[str, dict[OpConfig, float]]:
    """Of each node, each alone in each of its formats.

    The error goes with the squared error of the product: the coarsest format is run, the others
    follow from it by the error that rounding found.
    """
    known = store.errors()
    every = {name: _coarsest(name, configs, store) for name, configs in formats.items()}
    coarsest = {name: config for name, config in every.items() if config is not None}
    missing = [name for name in coarsest if (name, label(coarsest[name])) not in known]
    bench = _Bench(graph, list(coarsest), first_tokens(graph, probe)) if missing else None
    for name in tracked(missing):
        assert bench is not None
        word = label(coarsest[name])
        known[name, word] = bench.error(name, store.get(name, word).values())
        store.put_error(name, word, known[name, word])
    found: dict[str, dict[OpConfig, float]] = {}
    for name, configs in formats.items():
        losses = {config: store.loss(name, label(config)) for config in configs}
        chosen = coarsest.get(name)
        most = 1.0 if chosen is None else losses[chosen] or 1.0
        error = 0.0 if chosen is None else known[name, label(chosen)]
        found[name] = {config: error * loss / most for config, loss in losses.items()}
    return found


def _coarsest(name: str, configs: Sequence[OpConfig], store: WeightStore) -> OpConfig | None:
    """The format that rounding lost most in; None where none rounds weights alone."""
    rounded = [config for config in configs if config.mode == "weight_only"]
    return max(rounded, key=lambda config: store.loss(name, label(config)), default=None)


def first_tokens(graph: Graph, probe: Inputs) -> dict[str, np.ndarray]:
    """The first tokens of one sample: enough to tell ops apart."""
    fed = by_name(input_specs(graph), probe)
    found = {}
    for name, array in fed.items():
        part = array[:1] if array.ndim else array
        is_text = part.ndim == 2 and part.dtype.kind == "i"
        found[name] = np.ascontiguousarray(part[:, :TOKENS] if is_text else part)
    return found


class _Bench:
    """The graph in segments: what a changed weight does is computed from its segment on."""

    def __init__(self, graph: Graph, names: Sequence[str], inputs: Tensors) -> None:
        self.graph = graph
        self.output = graph.outputs[0]
        self.nodes = {node.name: node for node in graph.nodes if node.name in set(names)}
        self.segments = whole(graph, cut(graph, self.nodes))
        self.places = {
            node.name: at for at, segment in enumerate(self.segments) for node in segment.nodes
        }
        self.held: list[Tensors] = entered(self.segments[0], [inputs])
        self.pieces: list[Piece] = []
        for segment in self.segments:
            self.pieces.append(self._piece(segment, self.held[-1], {}))
            self.held.append(self._passed(segment, self.pieces[-1], self.held[-1]))
        self.truth = self._answer(self.held[-1])

    def error(self, name: str, values: np.ndarray) -> float:
        node, at = self.nodes[name], self.places[name]
        matrix = values if node.op_type == "Gather" else values.T
        changed = {_weight(node): np.ascontiguousarray(matrix, np.float32)}
        segment, now = self.segments[at], self.held[at]
        now = self._passed(segment, self._piece(segment, now, changed), now)
        for segment, known in zip(self.segments[at + 1 :], self.pieces[at + 1 :], strict=True):
            now = self._passed(segment, known, now)
        found = self._answer(now)
        if self.output != LOGITS:
            return distance([self.truth], [found])
        return divergence(self.truth, found)

    def _piece(self, segment: Segment, example: Tensors, changed: Tensors) -> Piece:
        made = {name for node in segment.nodes for name in node.output}
        outputs = [name for name in segment.leaves if name in made]
        return piece(self.graph, segment.nodes, example, outputs, {**self.graph.weights, **changed})

    def _passed(self, segment: Segment, running: Piece, now: Tensors) -> Tensors:
        (found,) = running.run([now])
        return passed_on(segment, now, found)

    def _answer(self, last: Tensors) -> np.ndarray:
        found = last[self.output]
        if self.output != LOGITS or found.ndim != 3:
            return found
        step = max(1, found.shape[1] // POSITIONS)
        return np.asarray(found[0, ::step])


def divergence(truth: np.ndarray, found: np.ndarray) -> float:
    """KL(truth ‖ found) of the softmax over the last axis, the mean over the others, in nats.

    >>> divergence(np.zeros((1, 2)), np.zeros((1, 2)))
    0.0
    """
    exact, other = _log_softmax(truth), _log_softmax(found)
    if not np.isfinite(other).all():
        return float("inf")
    return max(0.0, float((np.exp(exact) * (exact - other)).sum(axis=-1).mean()))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    made: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return made


def _weight(node: NodeProto) -> str:
    return str(node.input[0] if node.op_type == "Gather" else node.input[1])
