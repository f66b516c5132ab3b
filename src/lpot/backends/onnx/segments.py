"""A graph cut into segments that are run one after the other.

Only what passes from one segment to the next is held, for each batch: a decoder's residual, not
its layers' insides. The weights of a segment may be rounded before what it gives is computed, so
that the next one sees the inputs that it will get.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper
from onnxruntime import InferenceSession

from lpot.backends.onnx.graph import Graph, reads
from lpot.backends.onnx.run import session
from lpot.core.batch import Inputs

Tensors = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Segment:
    """Nodes that follow each other, what they read of those before, and what later ones read."""

    nodes: tuple[NodeProto, ...]
    enters: tuple[str, ...]
    leaves: tuple[str, ...]


def cut(graph: Graph, products: Collection[str]) -> list[Segment]:
    """Segments with the named products in them, cut where the fewest tensors pass.

    What follows the last product belongs to none.
    """
    nodes = list(graph.nodes)
    places = [at for at, node in enumerate(nodes) if node.name in products]
    if not places:
        return []
    passing = _passing(graph, nodes)
    # Given to all, or computed once for all (a decoder's lengths): they pass wherever the cut is.
    early = {*graph.inputs, *(name for node in nodes[: places[0]] for name in node.output)}
    made = [sum(name not in early for name in names) for names in passing]
    inner = range(places[0] + 1, places[-1] + 1)
    fewest = min((made[at] for at in inner), default=0)
    bounds = [0]
    for at in inner:
        is_filled = any(bounds[-1] <= place < at for place in places)
        if made[at] <= fewest + 1 and is_filled:
            bounds.append(at)
    bounds.append(places[-1] + 1)
    return [
        Segment(tuple(nodes[start:end]), passing[start], passing[end])
        for start, end in pairwise(bounds)
    ]


def _passing(graph: Graph, nodes: Sequence[NodeProto]) -> list[tuple[str, ...]]:
    """Of each place between two nodes: tensors made before it, or given, and read behind it."""
    last_read: dict[str, int] = {}
    for at, node in enumerate(nodes):
        last_read |= dict.fromkeys(reads(node), at)
    last_read[graph.outputs[0]] = len(nodes)  # the answer, wherever it is made
    live = {name for name in graph.inputs if name in last_read}
    found = [tuple(sorted(live))]
    for at, node in enumerate(nodes):
        live |= {name for name in node.output if name in last_read}
        live = {name for name in live if last_read[name] > at}
        found.append(tuple(sorted(live)))
    return found


def cut_evenly(graph: Graph, tensors: Collection[str], size: int) -> list[Segment]:
    """Segments that make about so many of the tensors each, cut where few tensors pass.

    The last one ends where nothing is read any more: the graph's outputs are not asked for.
    """
    last_read: dict[str, int] = {}
    for at, node in enumerate(graph.nodes):
        last_read |= dict.fromkeys(reads(node), at)
    ends: dict[int, int] = {}
    live = sum(name in last_read for name in graph.inputs)
    for name in (*graph.inputs, *graph.producers):
        if name in last_read:
            ends[last_read[name]] = ends.get(last_read[name], 0) + 1
    wanted, made, bounds = set(tensors), 0, [0]
    best: tuple[int, int] | None = None  # tensors that pass, and where
    for at, node in enumerate(graph.nodes):
        live += sum(name in last_read for name in node.output) - ends.get(at, 0)
        made += sum(name in wanted for name in node.output)
        if made >= size and (best is None or live < best[0]) and _all_tensors(graph, node):
            best = live, at + 1
        if best is not None and made >= size + size // 2:
            bounds.append(best[1])
            rest = graph.nodes[best[1] : at + 1]
            made, best = sum(name in wanted for other in rest for name in other.output), None
    bounds.append(len(graph.nodes))
    passing = _passing_at(graph, bounds, last_read)
    return [
        Segment(tuple(graph.nodes[start:end]), passing[start], passing[end])
        for start, end in pairwise(bounds)
    ]


def _all_tensors(graph: Graph, node: NodeProto) -> bool:
    """No sequences or maps, which can't be handed over."""
    return all(graph.types.get(name) != TensorProto.UNDEFINED for name in node.output)


def _passing_at(
    graph: Graph, bounds: Sequence[int], last_read: Mapping[str, int]
) -> dict[int, tuple[str, ...]]:
    """Of these places alone what passes there, as `_passing` tells of all."""
    found: dict[int, tuple[str, ...]] = {}
    live = {name for name in graph.inputs if name in last_read}
    for start, end in pairwise((0, *bounds)):
        for node in graph.nodes[start:end]:
            live |= {name for name in node.output if name in last_read}
        live = {name for name in live if last_read[name] >= end}
        found[end] = tuple(sorted(live))
    found[0] = tuple(name for name in graph.inputs if name in last_read)
    return found


def whole(graph: Graph, segments: Sequence[Segment]) -> list[Segment]:
    """The segments and what follows the last of them, to the graph's first output."""
    done = sum(len(segment.nodes) for segment in segments)
    rest = tuple(graph.nodes[done:])
    if not rest:
        return list(segments)
    enters = segments[-1].leaves if segments else _passing(graph, graph.nodes)[0]
    return [*segments, Segment(rest, enters, graph.outputs[:1])]


@dataclass(frozen=True, eq=False)
class Piece:
    """A segment as a graph of its own; `outputs` are what is asked of it."""

    graph: Graph
    outputs: tuple[str, ...]

    @cached_property
    def session(self) -> InferenceSession:
        return session(self.graph)

    def run(self, batches: Iterable[Tensors]) -> Iterator[Tensors]:
        """The outputs for each batch."""
        needed = [value.name for value in self.session.get_inputs()]
        for batch in batches:
            fed = {name: batch[name] for name in needed}
            found = self.session.run(list(self.outputs), fed)
            yield dict(zip(self.outputs, map(np.asarray, found), strict=True))


def piece(
    graph: Graph,
    nodes: Sequence[NodeProto],
    example: Tensors,
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
) -> Piece:
    """The graph of those nodes that the outputs need, fed with tensors such as the example's."""
    kept, needed = [], set(outputs)
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(reads(node))
    header = type(graph.header)()
    header.CopyFrom(graph.header)
    del header.graph.input[:], header.graph.output[:]
    given = [name for name in example if name in needed]
    header.graph.input.extend(_value(name, example[name]) for name in given)
    header.graph.output.extend(ValueInfoProto(name=name) for name in outputs)
    used = {name: array for name, array in weights.items() if name in needed}
    opaque = {name: tensor for name, tensor in graph.opaque.items() if name in needed}
    return Piece(Graph(header, tuple(reversed(kept)), used, opaque), tuple(outputs))


def _value(name: str, array: np.ndarray) -> ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, [None] * array.ndim)


def entered(segment: Segment, fed: Iterable[Inputs]) -> list[Tensors]:
    """What the first segment reads, of each batch."""
    return [{name: batch[name] for name in segment.enters} for batch in fed]  # type: ignore[call-overload]


def passed_on(segment: Segment, batch: Tensors, made: Tensors) -> Tensors:
    """What the next segment finds: made here, or passed through."""
    return {name: made[name] if name in made else batch[name] for name in segment.leaves}
