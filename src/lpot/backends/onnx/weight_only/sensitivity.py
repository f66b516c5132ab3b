"""What each op does to the answer in each format: the KL divergence of the logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.build import build_graph
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.plan import Plan
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

    Where weights alone are rounded, the error goes with the squared error of the product: the
    coarsest format is run, the others follow from it by the error that rounding found. A format
    that rounds inputs as well is run itself.
    """
    known = store.errors()
    asked = {name: _asked(name, configs, store) for name, configs in formats.items()}
    pairs = [(name, config) for name, configs in asked.items() for config in configs]
    missing = [(name, config) for name, config in pairs if (name, label(config)) not in known]
    nodes = list(dict.fromkeys(name for name, _ in pairs))
    bench = _Bench(graph, nodes, first_tokens(graph, probe)) if missing else None
    for name, config in tracked(missing):
        assert bench is not None
        word = label(config)
        known[name, word] = bench.error(name, config, store)
        store.put_error(name, word, known[name, word])
    return {
        name: {config: _known_error(name, config, asked[name], known, store) for config in configs}
        for name, configs in formats.items()
    }


def _asked(name: str, configs: Sequence[OpConfig], store: WeightStore) -> list[OpConfig]:
    """The formats that are run: those that round inputs, and of the others the one that rounding
    lost most in."""
    alone = [config for config in configs if config.mode == "weight_only"]
    coarsest = max(alone, key=lambda config: store.loss(name, label(config)), default=None)
    rest = [config for config in configs if config.mode != "weight_only"]
    return rest if coarsest is None else [coarsest, *rest]


def _known_error(
    name: str,
    config: OpConfig,
    asked: Sequence[OpConfig],
    known: Mapping[tuple[str, str], float],
    store: WeightStore,
) -> float:
    if config in asked:
        return known[name, label(config)]
    coarsest = label(asked[0])
    most = store.loss(name, coarsest)  # 0 where the weights lie on the grid, such as zeros
    return known[name, coarsest] * (store.loss(name, label(config)) / most if most else 1.0)


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

    def error(self, name: str, config: OpConfig, store: WeightStore) -> float:
        at = self.places[name]
        segment, now = self.segments[at], self.held[at]
        if config.mode == "weight_only":
            running = self._piece(segment, now, self._rounded(name, config, store))
        else:
            running = in_dynamic(self._piece(segment, now, {}), name, config)
        now = self._passed(segment, running, now)
        for segment, known in zip(self.segments[at + 1 :], self.pieces[at + 1 :], strict=True):
            now = self._passed(segment, known, now)
        found = self._answer(now)
        if self.output != LOGITS:
            return distance([self.truth], [found])
        return divergence(self.truth, found)

    def _rounded(self, name: str, config: OpConfig, store: WeightStore) -> Tensors:
        node = self.nodes[name]
        values = store.get(name, label(config)).values()
        matrix = values if node.op_type == "Gather" else values.T
        return {_weight(node): np.ascontiguousarray(matrix, np.float32)}

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


def in_dynamic(given: Piece, name: str, config: OpConfig) -> Piece:
    """The piece with one product on an input that is rounded while running."""
    plan = Plan({}, {name: config}, {}, {}, {})
    return Piece(build_graph(given.graph, plan, {}, {}), given.outputs)


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
