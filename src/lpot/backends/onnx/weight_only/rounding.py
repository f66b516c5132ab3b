"""Rounding the weights of a graph, layer by layer: each weight in each format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import input_specs, release_pages
from lpot.backends.onnx.weight_only.emit import Stored
from lpot.backends.onnx.weight_only.formats import AWQ, GPTQ, LEARNED, format_of, label
from lpot.backends.onnx.weight_only.hessians import Gathering, watched
from lpot.backends.onnx.weight_only.segments import (
    Segment,
    Tensors,
    cut,
    entered,
    passed_on,
    piece,
)
from lpot.backends.onnx.weight_only.store import WeightStore
from lpot.core.batch import Inputs
from lpot.core.inputs import by_name
from lpot.core.progress import tracked
from lpot.core.recipe import OpConfig
from lpot.core.weight_only.awq import scaled
from lpot.core.weight_only.gptq import Factored, factored, gptq
from lpot.core.weight_only.learned import learned
from lpot.core.weight_only.nearest import round_to_nearest

Wanted = Mapping[str, Sequence[OpConfig]]  # node → formats
WIDEST = 1 << 14  # columns whose Hessian is worth its memory; wider ones are rounded to nearest


@dataclass(frozen=True, eq=False)
class Seen:
    """What a product's inputs were; factored once for all formats and products with them."""

    hessian: np.ndarray

    @cached_property
    def factored(self) -> Factored:
        return factored(self.hessian)


def round_all(graph: Graph, wanted: Wanted, batches: Sequence[Inputs], store: WeightStore) -> None:
    """Every wanted weight that the store has not, layer by layer; what is done is on disk.

    Each layer's inputs come from the layers before it as they are rounded, in the first format
    wanted.
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
    for segment in segments:
        next(steps, None)
        here = [node for node in segment.nodes if node.name in layered and left[node.name]]
        tables = [node for node in segment.nodes if node.op_type == "Gather"]
        known = _rounded_weights(graph, tables, wanted, store)
        hessians = _seen(graph, segment, here, held, known) if here else {}
        last, inputs = "", None
        for node in here:
            next(steps, None)
            if inputs is None or node.input[0] != last:  # one is held at a time: they are large
                last, inputs = node.input[0], Seen(hessians[node.input[0]])
            _round_one(graph, node, left[node.name], inputs, store)
        if segment is not segments[-1]:
            known = _rounded_weights(graph, segment.nodes, wanted, store)
            held = _passed(graph, segment, held, known)


def _is_seen(graph: Graph, node: NodeProto) -> bool:
    """Is it a product whose inputs are looked at?"""
    return node.op_type != "Gather" and len(graph.weights[node.input[1]]) <= WIDEST


def _seen(
    graph: Graph,
    segment: Segment,
    products: Sequence[NodeProto],
    held: Sequence[Tensors],
    rounded: Tensors,
) -> dict[str, np.ndarray]:
    """The inputs of a segment's products over all batches."""
    widths = {node.input[0]: graph.weights[node.input[1]].shape[0] for node in products}
    nodes, constants, outputs = watched(widths)
    weights = {**graph.weights, **rounded, **constants}
    found = Gathering(widths)
    for made in piece(graph, [*segment.nodes, *nodes], held[0], outputs, weights).run(held):
        found.add([made[name] for name in outputs])
    return found.result()


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
        first = next((c for c in wanted.get(node.name, ()) if c.mode == "weight_only"), None)
        if first is not None:
            values = store.get(node.name, label(first)).values()
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
        stored = _rounded(weight, config, inputs)
        hessian = None if inputs is None else inputs.hessian
        store.put(node.name, label(config), stored, _loss(weight, stored, hessian))
    release_pages(graph.weights[name] for name in node.input if name in graph.weights)


def rows_of(graph: Graph, node: NodeProto) -> np.ndarray:
    """The weight with its output channels (or the table's entries) as rows."""
    if node.op_type == "Gather":
        return graph.weights[node.input[0]]
    return np.ascontiguousarray(graph.weights[node.input[1]].T)


def _rounded(weight: np.ndarray, config: OpConfig, inputs: Seen | None) -> Stored:
    assert config.weight is not None
    fmt, word = format_of(config), config.weight.algorithm
    if inputs is None:
        return Stored(round_to_nearest(weight, fmt))
    if word in (GPTQ, LEARNED):
        found = gptq(weight, inputs.factored, fmt)
        return Stored(learned(weight, inputs.hessian, found) if word == LEARNED else found)
    energy = np.diagonal(inputs.hessian).astype(np.float32)
    if word == AWQ:
        scales, rounded = scaled(weight, energy, fmt)
        return Stored(rounded, 1 / scales)
    return Stored(round_to_nearest(weight, fmt, energy))


def _loss(weight: np.ndarray, stored: Stored, hessian: np.ndarray | None) -> float:
    """Mean squared error of the outputs; of the weights where no input was seen."""
    total = 0.0
    values = stored.values()
    for start in range(0, len(weight), 8192):
        off = values[start : start + 8192] - weight[start : start + 8192]
        total += float(np.vdot(off, off if hessian is None else off @ hessian))
    return total
