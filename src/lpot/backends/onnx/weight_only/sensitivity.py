"""What each op does to the answer in each format: the KL divergence of the logits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.build import build_graph
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.plan import Plan
from lpot.backends.onnx.run import input_specs
from lpot.backends.onnx.segments import (
    Piece,
    Segment,
    Tensors,
    cut,
    entered,
    passed_on,
    piece,
    whole,
)
from lpot.backends.onnx.weight_only.formats import label
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
Change = tuple[str, OpConfig]  # a node, alone in a format


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
    if missing:
        bench = _Bench(graph, {name for name, _ in pairs}, store)
        for (name, config), error in bench.errors(missing, first_tokens(graph, probe)):
            known[name, label(config)] = error
            store.put_error(name, label(config), error)
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
    """The graph in segments, run one at a time: what a changed weight does is carried along.

    Of each change only what passes between two segments is held, a decoder's residual as a rule. No
    more of the weights are packed for the runtime than those of one segment.
    """

    def __init__(self, graph: Graph, names: Collection[str], store: WeightStore) -> None:
        self.graph = graph
        self.store = store
        self.output = graph.outputs[0]
        self.nodes = {node.name: node for node in graph.nodes if node.name in names}
        self.segments = whole(graph, cut(graph, self.nodes))
        # Behind the last product the answer itself passes, too large to be held for each change.
        self.last = max(
            at
            for at, segment in enumerate(self.segments)
            if any(node.name in self.nodes for node in segment.nodes)
        )

    def errors(self, changes: Sequence[Change], inputs: Tensors) -> Iterator[tuple[Change, float]]:
        (exact,) = entered(self.segments[0], [inputs])
        changed: dict[Change, Tensors] = {}
        for segment in tracked(self.segments[: self.last]):
            plain = self._piece(segment, exact)
            changed = {change: plain.passed(now) for change, now in changed.items()}
            for change in self._of(segment, changes):
                changed[change] = self._changed(segment, exact, change).passed(exact)
            exact = plain.passed(exact)
        tail = self._tail(exact)
        truth = self._answer(tail, exact)
        for change in tracked(self._of(self.segments[self.last], changes)):
            first = self._changed(self.segments[self.last], exact, change)
            yield change, self._error(truth, self._answer([first, *tail[1:]], exact))
        for change, now in tracked(list(changed.items())):
            yield change, self._error(truth, self._answer(tail, now))

    def _of(self, segment: Segment, changes: Sequence[Change]) -> list[Change]:
        here = {node.name for node in segment.nodes}
        return [change for change in changes if change[0] in here]

    def _tail(self, entering: Tensors) -> list[_Running]:
        """The last product's segment and what follows it."""
        found: list[_Running] = []
        for segment in self.segments[self.last :]:
            found.append(self._piece(segment, entering))
            if segment is not self.segments[-1]:
                entering = found[-1].passed(entering)
        return found

    def _answer(self, pieces: Sequence[_Running], now: Tensors) -> np.ndarray:
        for running in pieces:
            now = running.passed(now)
        found = now[self.output]
        if self.output != LOGITS or found.ndim != 3:
            return found
        step = max(1, found.shape[1] // POSITIONS)
        return np.asarray(found[0, ::step])

    def _error(self, truth: np.ndarray, found: np.ndarray) -> float:
        if self.output != LOGITS:
            return distance([truth], [found])
        return divergence(truth, found)

    def _changed(self, segment: Segment, example: Tensors, change: Change) -> _Running:
        name, config = change
        if config.mode == "weight_only":
            return self._piece(segment, example, self._rounded(name, config))
        plain = self._piece(segment, example)
        return _Running(segment, in_dynamic(plain.piece, name, config))

    def _rounded(self, name: str, config: OpConfig) -> Tensors:
        node = self.nodes[name]
        values = self.store.get(name, label(config)).values()
        matrix = values if node.op_type == "Gather" else values.T
        return {_weight(node): np.ascontiguousarray(matrix, np.float32)}

    def _piece(
        self, segment: Segment, example: Tensors, changed: Tensors | None = None
    ) -> _Running:
        made = {name for node in segment.nodes for name in node.output}
        outputs = [name for name in segment.leaves if name in made]
        weights = {**self.graph.weights, **(changed or {})}
        return _Running(segment, piece(self.graph, segment.nodes, example, outputs, weights))


@dataclass(frozen=True, eq=False)
class _Running:
    """A segment and the graph that runs it."""

    segment: Segment
    piece: Piece

    def passed(self, now: Tensors) -> Tensors:
        """What the next segment finds."""
        (found,) = self.piece.run([now])
        return passed_on(self.segment, now, found)


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
