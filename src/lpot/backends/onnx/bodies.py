"""Bodies of If, Loop and Scan as models of their own: what they read from outside is an input, too.

Each is loaded, inspected, observed (`turns.py`) and built like any model, and put back where it
stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from lpot.backends.onnx.graph import Graph, attribute, outer_reads, subgraphs, to_tensor

if TYPE_CHECKING:
    from lpot.backends.onnx.model import OnnxModel

PLACES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
SCAN = 9  # the opset before which Scan had another form


@dataclass(frozen=True, eq=False)
class Body:
    """What `node` runs: the graph in its attribute `place`, which takes the inputs `formal`."""

    node: NodeProto
    place: str
    formal: tuple[str, ...]
    model: OnnxModel

    @property
    def name(self) -> str:
        return f"bodies/{self.node.name}/{self.place}"

    @property
    def prefix(self) -> str:
        return prefix_of(self.node.name, self.place)

    @property
    def outer(self) -> tuple[str, ...]:
        """The tensors that it reads from outside."""
        return tuple(name for name in self.model.graph.inputs if name not in self.formal)


def prefix_of(node: str, place: str) -> str:
    """What the names of ops in a body begin with: ops are told apart by name, everywhere."""
    return f"{node}/{place.removesuffix('_branch')}/"


def parts(model: OnnxModel) -> Iterator[OnnxModel]:
    """The model, the bodies in it, and those in these."""
    yield model
    for body in model.bodies:
        yield from parts(body.model)


def places(graph: Graph) -> Iterator[tuple[NodeProto, AttributeProto, ModelProto]]:
    """Every body whose inputs are tensors of known type, as a model."""
    for node in graph.nodes:
        if node.domain not in ("", "ai.onnx") or (node.op_type == "Scan" and graph.opset < SCAN):
            continue
        for item in node.attribute:
            if item.name in PLACES.get(node.op_type, ()):
                proto = _as_model(graph, node, item)
                if proto is not None:
                    yield node, item, proto


def _as_model(graph: Graph, node: NodeProto, item: AttributeProto) -> ModelProto | None:
    formal = _formal_inputs(graph, node, item.g)
    outside = list(dict.fromkeys(outer_reads(item.g)))
    given = [name for name in outside if not graph.is_constant(name) and name not in graph.opaque]
    known = all(graph.types.get(name, TensorProto.UNDEFINED) for name in given)
    if formal is None or not known or not item.g.node or item.g.sparse_initializer:
        return None
    if any(value.name in outside for value in item.g.output):
        return None  # hands on what others made: the runtime takes no such model
    proto = ModelProto()
    proto.CopyFrom(graph.header)
    proto.graph.CopyFrom(item.g)
    for index, inner in enumerate(proto.graph.node):
        own = inner.name or f"{inner.op_type}_{index}"
        inner.name = f"{prefix_of(node.name, item.name)}{own}"
    del proto.graph.input[:]
    proto.graph.input.extend(formal)
    proto.graph.input.extend(
        helper.make_tensor_value_info(name, graph.types[name], graph.shapes.get(name))
        for name in given
    )
    for name in outside:
        if graph.is_constant(name):
            proto.graph.initializer.append(to_tensor(name, graph.weights[name]))
        elif name in graph.opaque:
            proto.graph.initializer.append(graph.opaque[name])
    return proto


def _formal_inputs(graph: Graph, node: NodeProto, body: GraphProto) -> list[ValueInfoProto] | None:
    """What the body is called with; the node's own inputs tell the types that it leaves out."""
    if node.op_type == "Scan" and int(attribute(node, "num_scan_inputs", 0)) < 1:
        return None
    first = [TensorProto.INT64, TensorProto.BOOL]  # the number of the turn, and whether to go on
    types = [graph.types.get(name, TensorProto.UNDEFINED) for name in node.input]
    if node.op_type == "Loop":
        types = [*first, *types[2:]]
    found = []
    for value, kind in zip(body.input, types, strict=False):
        twin = ValueInfoProto()
        twin.CopyFrom(value)
        if not value.type.HasField("tensor_type"):
            if value.type.WhichOneof("value") or kind == TensorProto.UNDEFINED:
                return None
            twin = helper.make_tensor_value_info(value.name, kind, None)
        found.append(twin)
    if node.op_type == "Loop":
        for twin, name in zip(found[2:], node.input[2:], strict=False):
            _open_state(twin, graph.shapes.get(name))
    return found if len(found) == len(body.input) else None


def _open_state(state: ValueInfoProto, begun: tuple[int | str | None, ...] | None) -> None:
    """The runtime does not hold a Loop's states to the sizes that its body declares for them.

    `begun` is the shape of the value that the first turn is given.
    """
    tensor = state.type.tensor_type
    if begun is None or not tensor.HasField("shape"):
        return
    if len(tensor.shape.dim) != len(begun):
        tensor.ClearField("shape")
        return
    for dim, size in zip(tensor.shape.dim, begun, strict=True):
        if dim.HasField("dim_value") and dim.dim_value != size:
            dim.ClearField("dim_value")


# -- back into the model -------------------------------------------------------------------------


def put_back(graph: Graph, built: Mapping[tuple[str, str], Graph]) -> Graph:
    """The graph with other bodies in its nodes; weights that nobody reads any more are dropped."""
    nodes = []
    for node in graph.nodes:
        own = {place: body for (name, place), body in built.items() if name == node.name}
        nodes.append(_with_bodies(graph, node, own) if own else node)
    return graph.replaced(nodes, graph.weights)


def _with_bodies(graph: Graph, node: NodeProto, bodies: Mapping[str, Graph]) -> NodeProto:
    twin = NodeProto()
    twin.CopyFrom(node)
    for item in twin.attribute:
        if item.name not in bodies:
            continue
        written = _body(graph, bodies[item.name])
        written.name = item.g.name
        written.input.extend(item.g.input)
        written.output.extend(item.g.output)
        item.g.CopyFrom(written)
    return twin


def _body(graph: Graph, body: Graph) -> GraphProto:
    """Nodes and constants, without names that the outer graph has for something else."""
    shared = {
        name
        for name, array in body.weights.items()
        if name in graph.weights and np.array_equal(graph.weights[name], array)
    }
    written = GraphProto()
    written.node.extend(body.nodes)
    written.initializer.extend(
        to_tensor(name, array) for name, array in body.weights.items() if name not in shared
    )
    written.initializer.extend(
        tensor for name, tensor in body.opaque.items() if name not in graph.opaque
    )
    taken = {name for name in _made_in(written) if graph.fresh(name) != name}
    return _renamed(written, {name: graph.fresh(body.fresh(f"{name}/inner")) for name in taken})


def _made_in(graph: GraphProto) -> Iterator[str]:
    """The names that a graph gives to tensors, those of graphs inside it included."""
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from (name for name in node.output if name)
        for inner in subgraphs(node):
            yield from (value.name for value in inner.input)
            yield from _made_in(inner)


def _renamed(graph: GraphProto, names: Mapping[str, str]) -> GraphProto:
    twin = GraphProto()
    twin.CopyFrom(graph)
    _rename(twin, names)
    return twin


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    named: Iterable[TensorProto | ValueInfoProto] = (
        *graph.initializer,
        *graph.input,
        *graph.output,
        *graph.value_info,
    )
    for item in named:
        item.name = names.get(item.name, item.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for inner in subgraphs(node):
            _rename(inner, names)
