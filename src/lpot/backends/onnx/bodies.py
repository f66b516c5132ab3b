"""The branches of If as models of their own: the tensors they read from outside are their inputs.

Each is loaded, inspected, observed and built like any model, and put back where it stood. Bodies of
Loop and Scan stay as they are: what they read changes from turn to turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import Graph, outer_reads, to_tensor
from lpot.backends.onnx.run import feed, run_session, session
from lpot.core.batch import Inputs

if TYPE_CHECKING:
    from lpot.backends.onnx.model import OnnxModel

MOST = 64  # batches that a branch is observed with
TAKEN = {"then_branch": True, "else_branch": False}


@dataclass(frozen=True, eq=False)
class Body:
    """One branch: `node` names its If, `branch` the attribute."""

    node: str
    branch: str
    condition: str
    model: OnnxModel

    @property
    def name(self) -> str:
        return f"bodies/{self.node}/{self.branch}"

    @property
    def prefix(self) -> str:
        return prefix_of(self.node, self.branch)


def prefix_of(node: str, branch: str) -> str:
    """What the names of ops in a branch begin with: ops are told apart by name, everywhere."""
    return f"{node}/{branch.removesuffix('_branch')}/"


def parts(model: OnnxModel) -> Iterator[OnnxModel]:
    """The model, the branches of its Ifs, and those of theirs."""
    yield model
    for body in model.bodies:
        yield from parts(body.model)


def branches(graph: Graph) -> Iterator[tuple[NodeProto, AttributeProto, ModelProto]]:
    """Every branch whose outside tensors are of known type, as a model."""
    for node in graph.nodes:
        if node.op_type != "If" or node.domain not in ("", "ai.onnx"):
            continue
        for item in node.attribute:
            proto = _as_model(graph, node, item) if item.name in TAKEN else None
            if proto is not None:
                yield node, item, proto


def _as_model(graph: Graph, node: NodeProto, item: AttributeProto) -> ModelProto | None:
    outside = list(dict.fromkeys(outer_reads(item.g)))
    given = [name for name in outside if not graph.is_constant(name) and name not in graph.opaque]
    if (
        not item.g.node
        or item.g.sparse_initializer
        or any(name not in graph.types for name in given)
    ):
        return None
    made = {name for inner in item.g.node for name in inner.output}
    if any(graph.types[name] == TensorProto.UNDEFINED for name in given):
        return None
    if any(value.name not in made for value in item.g.output):
        return None  # hands on what others made: nothing to win, and no model of its own
    proto = ModelProto()
    proto.CopyFrom(graph.header)
    proto.graph.CopyFrom(item.g)
    for index, inner in enumerate(proto.graph.node):
        own = inner.name or f"{inner.op_type}_{index}"
        inner.name = f"{prefix_of(node.name, item.name)}{own}"
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


class Taps:
    """What the branches read from outside, batch by batch."""

    def __init__(self, model: OnnxModel, bodies: Sequence[Body]) -> None:
        self.model = model
        self.bodies = bodies
        wanted = [body.condition for body in bodies]
        wanted += [name for body in bodies for name in body.model.graph.inputs]
        self.names = list(dict.fromkeys(wanted))
        self.fed = {body.name: list[Inputs]() for body in bodies}
        self._session = session(_tapped(model.folded, self.names))

    def __call__(self, batches: Iterable[Inputs]) -> Iterator[Inputs]:
        """The same batches, noted on the way."""
        for inputs in batches:
            feeds = feed(self.model.inputs, inputs)
            self._note(dict(zip(self.names, self._run(feeds), strict=True)))
            yield feeds

    def _run(self, feeds: Inputs) -> list[np.ndarray]:
        return run_session(self._session, self.model.inputs, feeds)

    def _note(self, values: Mapping[str, np.ndarray]) -> None:
        for body in self.bodies:
            taken = bool(np.asarray(values[body.condition]).reshape(-1)[0]) == TAKEN[body.branch]
            if taken and len(self.fed[body.name]) < MOST:
                given = {name: values[name] for name in body.model.graph.inputs}
                self.fed[body.name].append(given)


def _tapped(graph: Graph, names: Sequence[str]) -> Graph:
    header = ModelProto()
    header.CopyFrom(graph.header)
    del header.graph.output[:]
    header.graph.output.extend(
        helper.make_tensor_value_info(name, graph.types.get(name, TensorProto.FLOAT), None)
        for name in names
    )
    return Graph(header, graph.nodes, graph.weights, graph.opaque, graph.types, graph.shapes)


def put_back(graph: Graph, built: Mapping[tuple[str, str], Graph]) -> Graph:
    """The graph with other bodies in its Ifs; weights that nobody reads any more are dropped."""
    nodes = []
    for node in graph.nodes:
        own = {branch: body for (name, branch), body in built.items() if name == node.name}
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
    own = {name for node in body.nodes for name in node.output} | set(body.weights) - shared
    renamed = {name: body.fresh(f"{name}/inner") for name in own if graph.fresh(name) != name}
    written = GraphProto()
    written.node.extend(_renamed(node, renamed) for node in body.nodes)
    written.initializer.extend(
        to_tensor(renamed.get(name, name), array)
        for name, array in body.weights.items()
        if name not in shared
    )
    written.initializer.extend(
        tensor for name, tensor in body.opaque.items() if name not in graph.opaque
    )
    return written


def _renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    twin = NodeProto()
    twin.CopyFrom(node)
    twin.input[:] = [names.get(name, name) for name in node.input]
    twin.output[:] = [names.get(name, name) for name in node.output]
    for item in twin.attribute:
        if item.type == AttributeProto.GRAPH:
            inner = [_renamed(one, names) for one in item.g.node]
            del item.g.node[:]
            item.g.node.extend(inner)
    return twin
