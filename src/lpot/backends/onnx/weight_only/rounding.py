"""Rounding the weights of a graph, layer by layer: each weight in each format."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import input_specs, release_pages
from lpot.backends.onnx.segments import (
    Segment,
    Tensors,
    cut,
    entered,
    passed_on,
    piece,
)
from lpot.backends.onnx.weight_only.emit import Stored
from lpot.backends.onnx.weight_only.formats import label, same_format
from lpot.backends.onnx.weight_only.store import WeightStore
from lpot.backends.onnx.weight_only.ways import Seen, best_way, compares, held_out, rounded
from lpot.core.batch import Inputs
from lpot.core.inputs import by_name
from lpot.core.progress import tracked
from lpot.core.recipe import OpConfig

Wanted = Mapping[str, Sequence[OpConfig]]  # node → formats
WIDEST = 1 << 14  # columns whose Hessian is worth its memory; wider ones are rounded to nearest


def round_all(
    graph: Graph,
    wanted: Wanted,
    batches: Sequence[Inputs],
    store: WeightStore,
    chained: bool = True,
) -> None:
    """Every wanted weight that the store has not, product by product; what is done is on disk.

    Each product's inputs come from those before it as they are rounded, in the first format wanted
    and in the way that loses least there; where not `chained`, from FP32. Where several ways are
    to be compared, some of the batches are held out for that.
    """
    left = {
        name: [c for c in configs if c.mode == "weight_only" and not store.has(name, label(c))]
        for name, configs in wanted.items()
    }
    nodes = [node for node in graph.nodes if left.get(node.name)]
    layered = {n.name for n in graph.nodes if batches and n.name in left and _is_seen(graph, n)}
    segments = cut(graph, layered)
    while segments and not any(left.get(node.name) for node in segments[-1].nodes):
        segments.pop()
    steps = tracked(range(len(nodes) + len(segments)))
    for node in nodes:
        if node.name not in layered:
            next(steps, None)
            _round_one(graph, node, left[node.name], None, store)
    if not segments:
        return
    specs = input_specs(graph)
    held = entered(segments[0], (by_name(specs, batch) for batch in batches))
    judges = held_out(len(batches)) if compares(wanted) else frozenset()
    for segment in segments:
        next(steps, None)
        here = [node for node in segment.nodes if node.name in layered and left[node.name]]
        for name in dict.fromkeys(node.input[0] for node in here):
            wave = [node for node in here if node.input[0] == name]
            before = takewhile(lambda node: node is not wave[0], segment.nodes)  # noqa: B023
            known = _rounded_weights(graph, before, wanted, store) if chained else {}
            inputs = _seen(graph, segment, wave[0], held, known, judges)
            for node in wave:
                next(steps, None)
                _round_one(graph, node, left[node.name], inputs, store)
        if segment is not segments[-1]:
            known = _rounded_weights(graph, segment.nodes, wanted, store) if chained else {}
            held = _passed(graph, segment, held, known)


def _is_seen(graph: Graph, node: NodeProto) -> bool:
    """Is it a product whose inputs are looked at?"""
    return node.op_type != "Gather" and len(graph.weights[node.input[1]]) <= WIDEST


def _seen(
    graph: Graph,
    segment: Segment,
    product: NodeProto,
    held: Sequence[Tensors],
    rounded: Tensors,
    judges: Collection[int],
) -> Seen:
    """The inputs of a product over all batches, with those before it rounded."""
    widths = {product.input[0]: graph.weights[product.input[1]].shape[0]}
    nodes, constants, outputs = watched(widths)
    weights = {**graph.weights, **rounded, **constants}
    fitted, judged = Gathering(widths), Gathering(widths)
    running = piece(graph, [*segment.nodes, *nodes], held[0], outputs, weights).run(held)
    for at, made in enumerate(running):
        (judged if at in judges else fitted).add([made[name] for name in outputs])
    (hessian,) = fitted.damped().values()
    (judge,) = (judged if judges else fitted).result().values()
    return Seen(hessian, judge)


def _passed(
    graph: Graph, segment: Segment, held: Sequence[Tensors], rounded: Tensors
) -> list[Tensors]:
    """What the next segment reads, of each batch."""
    made = {name for node in segment.nodes for name in node.output}
    outputs = [name for name in segment.leaves if name in made]
    weights = {**graph.weights, **rounded}
    running = piece(graph, segment.nodes, held[0], outputs, weights).run(held)
    return [passed_on(segment, batch, found) for batch, found in zip(held, running, strict=True)]


def _rounded_weights(
    graph: Graph, nodes: Iterable[NodeProto], wanted: Wanted, store: WeightStore
) -> Tensors:
    """Their weights in the first format wanted of each, as float32."""
    found: Tensors = {}
    for node in nodes:
        low = [config for config in wanted.get(node.name, ()) if config.mode == "weight_only"]
        if low:
            alike = [config for config in low if same_format(config) == same_format(low[0])]
            values = store.get(node.name, label(best_way(node.name, alike, store))).values()
            is_table = node.op_type == "Gather"
            found[node.input[0 if is_table else 1]] = values if is_table else values.T
    return found


def _round_one(
    graph: Graph,
    node: NodeProto,
    configs: Sequence[OpConfig],
    inputs: Seen | None,
    store: WeightStore,
) -> None:
    weight = rows_of(graph, node)
    for config in configs:
        stored = rounded(weight, config, inputs)
        judge = None if inputs is None else inputs.judge
        store.put(node.name, label(config), stored, _loss(weight, stored, judge))
    release_pages(graph.weights[name] for name in node.input if name in graph.weights)


def rows_of(graph: Graph, node: NodeProto) -> np.ndarray:
    """The weight with its output channels (or the table's entries) as rows."""
    if node.op_type == "Gather":
        return graph.weights[node.input[0]]
    return np.ascontiguousarray(graph.weights[node.input[1]].T)


def _loss(weight: np.ndarray, stored: Stored, hessian: np.ndarray | None) -> float:
    """Mean squared error of the outputs; of the weights where no input was seen."""
    total = 0.0
    values = stored.values()
    for start in range(0, len(weight), 8192):
        off = values[start : start + 8192] - weight[start : start + 8192]
        total += float(np.vdot(off, off if hessian is None else off @ hessian))
    return total


# -- What the inputs of products look like: the mean of x xᵀ, reduced inside the graph.


# Of the mean diagonal, for one row a column: what is added to it. On SmolLM2, outputs for other
# texts gain by it where rows are few (8192 for 1536 columns), and lose nothing where they are many.
CHANCE = 0.25


class Gathering:
    """Sums over batches of what `watched` gives."""

    def __init__(self, widths: Mapping[str, int]) -> None:
        self.names = tuple(widths)
        self._sums = [np.zeros((columns, columns), np.float32) for columns in widths.values()]
        self._rows = np.zeros(len(widths))

    def add(self, found: Sequence[np.ndarray]) -> None:
        for at in range(len(self.names)):
            product, shape = found[2 * at : 2 * at + 2]
            self._sums[at] += product
            self._rows[at] += int(shape[0])

    def result(self) -> dict[str, np.ndarray]:
        return {
            name: self._sums[at] / np.float32(max(self._rows[at], 1.0))
            for at, name in enumerate(self.names)
        }

    def damped(self) -> dict[str, np.ndarray]:
        """The same to fit weights to: the fewer rows for its columns, the less is made of what
        goes together in them by chance."""
        found = self.result()
        for rows, hessian in zip(self._rows, found.values(), strict=True):
            share = CHANCE * len(hessian) / max(rows, 1.0)
            hessian[np.diag_indices(len(hessian))] += share * float(np.diagonal(hessian).mean())
        return found


def watched(widths: Mapping[str, int]) -> tuple[list[NodeProto], dict[str, np.ndarray], list[str]]:
    """Nodes that reduce the tensors to x xᵀ, and to rows; their constants and outputs."""
    nodes: list[NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    outputs: list[str] = []
    for at, (name, columns) in enumerate(widths.items()):
        stem = f"lpot/hessian/{at}"
        constants[f"{stem}/shape"] = np.array([-1, columns], np.int64)
        flat, turned = f"{stem}/flat", f"{stem}/turned"
        steps: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
            ("Reshape", [name, f"{stem}/shape"], flat, {}),
            ("Transpose", [flat], turned, {"perm": [1, 0]}),
            ("MatMul", [turned, flat], stem, {}),
            ("Shape", [flat], f"{stem}/rows", {}),
        )
        nodes += [
            helper.make_node(kind, given, [made], name=f"{made}:{kind}", **settings)
            for kind, given, made, settings in steps
        ]
        outputs += [stem, f"{stem}/rows"]
    return nodes, constants, outputs
