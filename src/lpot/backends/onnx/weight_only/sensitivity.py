"""What each op does to the answer in each format: the KL divergence of the logits, from one graph.

The weights are inputs of one session, so that another format is another feed and nothing is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import feed, input_specs, session
from lpot.backends.onnx.weight_only.formats import label
from lpot.backends.onnx.weight_only.store import WeightStore
from lpot.core.batch import Inputs
from lpot.core.progress import tracked
from lpot.core.ptq.distance import distance
from lpot.core.recipe import OpConfig

QUICK = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
POSITIONS = 64  # of the probe whose answers are compared
LOGITS = "logits"
TOKENS = 128  # of a window that are read

Formats = Mapping[str, Sequence[OpConfig]]  # node → its low formats


def harms(
    graph: Graph, formats: Formats, probe: Inputs, store: WeightStore
) -> dict[str, dict[OpConfig, float]]:
    """Of each node, each alone in each of its formats.

    The harm goes with the squared error of the product: the coarsest format is run, the others
    follow from it by the error that rounding found.
    """
    bench = _Bench(graph, list(formats), cut(graph, probe))
    found: dict[str, dict[OpConfig, float]] = {}
    for name in tracked(list(formats)):
        losses = {config: store.loss(name, label(config)) for config in formats[name]}
        rounded = [config for config in formats[name] if config.mode == "weight_only"]
        coarsest = max(rounded, key=lambda config: losses[config], default=None)
        if coarsest is None:
            found[name] = {}
            continue
        harm = bench.harm(name, store.get(name, label(coarsest)).values())
        whole = losses[coarsest] or 1.0
        found[name] = {config: harm * loss / whole for config, loss in losses.items()}
    return found


def cut(graph: Graph, probe: Inputs) -> dict[str, np.ndarray]:
    """The first tokens of one sample: enough to tell ops apart."""
    fed = feed(input_specs(graph), probe)
    found = {}
    for name, array in fed.items():
        part = array[:1] if array.ndim else array
        is_text = part.ndim == 2 and part.dtype.kind == "i"
        found[name] = np.ascontiguousarray(part[:, :TOKENS] if is_text else part)
    return found


class _Bench:
    """One session whose weights and switches are fed."""

    def __init__(self, graph: Graph, names: Sequence[str], inputs: Mapping[str, np.ndarray]):
        self.nodes = {node.name: node for node in graph.nodes if node.name in set(names)}
        self.inputs = inputs
        opened = _opened(graph, list(self.nodes.values()))
        self.session = session(opened, QUICK)
        self.output = graph.outputs[0]
        fed = {_weight(node) for node in self.nodes.values()}
        self.usual: dict[str, np.ndarray] = {name: graph.weights[name] for name in fed}
        self.truth = self._run({})

    def harm(self, name: str, values: np.ndarray) -> float:
        node = self.nodes[name]
        matrix = values if node.op_type == "Gather" else values.T
        feeds = {_weight(node): np.ascontiguousarray(matrix, np.float32)}
        found = self._run(feeds)
        if self.output != LOGITS:
            return distance([self.truth], [found])
        return divergence(self.truth, found)

    def _run(self, changed: Mapping[str, np.ndarray]) -> np.ndarray:
        (found,) = self.session.run([self.output], {**self.inputs, **self.usual, **changed})
        if self.output != LOGITS or found.ndim != 3:
            return np.asarray(found)
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


def _opened(graph: Graph, chosen: Sequence[NodeProto]) -> Graph:
    """The graph with the chosen weights as inputs."""
    header = type(graph.header)()
    header.CopyFrom(graph.header)
    for name in dict.fromkeys(map(_weight, chosen)):
        shape = list(graph.weights[name].shape)
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        header.graph.input.append(value)
    fed = set(map(_weight, chosen))
    kept = {name: array for name, array in graph.weights.items() if name not in fed}
    return Graph(header, graph.nodes, kept, graph.opaque, graph.types, graph.shapes)
