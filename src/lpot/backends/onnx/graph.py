"""An ONNX model in memory: node protos, weights as numpy arrays kept aside, and who feeds whom."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

# Tensors above this many bytes are handed to the runtime aside from the proto, never serialised.
SMALL = 256
ASIDE = "lpot-in-memory"
# Marks the nodes our own passes add: they have no name the user knows, and follow their neighbours.
DERIVED = "added by lpot"


@dataclass(frozen=True, eq=False)
class Graph:
    """One model. `nodes` are shared with other graphs and never changed in place.

    `weights` holds every initializer that numpy can carry; `opaque` the few it can't.
    """

    header: ModelProto  # everything but nodes and initializers
    nodes: tuple[NodeProto, ...]
    weights: Mapping[str, np.ndarray]
    opaque: Mapping[str, TensorProto] = field(default_factory=dict)
    types: Mapping[str, int] = field(default_factory=dict)  # tensor name → TensorProto dtype
    shapes: Mapping[str, tuple[int | str | None, ...]] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        return max(
            (o.version for o in self.header.opset_import if o.domain in ("", "ai.onnx")), default=0
        )

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.header.graph.input)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return tuple(value.name for value in self.header.graph.output)

    @cached_property
    def producers(self) -> dict[str, NodeProto]:
        return {name: node for node in self.nodes for name in node.output if name}

    @cached_property
    def consumers(self) -> dict[str, list[NodeProto]]:
        """Tensor → nodes that read it, once for each time; a node whose subgraph reads it counts.

        One list for a tensor that a node reads twice would say that nobody else minds a change.
        """
        found: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in reads(node):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def read_inside(self) -> frozenset[str]:
        """The tensors that a subgraph reads from outside."""
        bodies = (body for node in self.nodes for body in subgraphs(node))
        return frozenset(name for body in bodies for name in outer_reads(body))

    @property
    def nbytes(self) -> int:
        """Of all weights, those inside subgraphs included."""
        arrays = sum(array.nbytes for array in self.weights.values())
        inner = sum(_inner_bytes(node) for node in self.nodes)
        return arrays + inner + sum(int(tensor.ByteSize()) for tensor in self.opaque.values())

    def is_constant(self, name: str) -> bool:
        return name in self.weights

    @cached_property
    def _names(self) -> set[str]:
        made = {name for node in self.nodes for name in node.output}
        return {*self.weights, *self.opaque, *self.inputs, *made}

    def fresh(self, name: str) -> str:
        """The name itself, or one like it that no tensor here has; the same answer each time."""
        while name in self._names:
            name += "_"
        return name

    def replaced(self, nodes: Iterable[NodeProto], weights: Mapping[str, np.ndarray]) -> Graph:
        """The same model with other nodes and weights; weights nobody reads are dropped."""
        kept = tuple(nodes)
        used = {name for node in kept for name in reads(node)} | set(self.outputs)
        return Graph(
            self.header,
            kept,
            {name: array for name, array in weights.items() if name in used},
            {name: tensor for name, tensor in self.opaque.items() if name in used},
            self.types,
            self.shapes,
        )

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for node in self.nodes:
            digest.update(node.SerializeToString(deterministic=True))
        for name in sorted(self.weights):
            array = self.weights[name]
            digest.update(f"{name}{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
        for name in sorted(self.opaque):
            digest.update(self.opaque[name].SerializeToString(deterministic=True))
        for value in (*self.header.graph.input, *self.header.graph.output):
            digest.update(value.SerializeToString(deterministic=True))
        return digest.hexdigest()[:32]

    # -- to protos ---------------------------------------------------------------------------

    def skeleton(self) -> tuple[ModelProto, dict[str, np.ndarray]]:
        """A small proto, and the tensors to hand over aside (`add_external_initializers`)."""
        model = self._shell()
        aside: dict[str, np.ndarray] = {}
        for name, array in self.weights.items():
            if array.nbytes > SMALL:
                model.graph.initializer.append(_placeholder(name, array))
                aside[name] = array
            else:
                model.graph.initializer.append(to_tensor(name, array))
        return model, aside

    def embedded(self) -> ModelProto:
        """One self-contained proto. The caller sees to it that it is below 2 GB."""
        model = self._shell()
        model.graph.initializer.extend(
            to_tensor(name, array) for name, array in self.weights.items()
        )
        return model

    def _shell(self) -> ModelProto:
        model = ModelProto()
        model.CopyFrom(self.header)
        model.graph.node.extend(self.nodes)
        model.graph.initializer.extend(self.opaque.values())
        return model


def reads(node: NodeProto) -> Iterator[str]:
    """Every tensor a node reads, those read inside its subgraphs from outside included."""
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        yield from outer_reads(graph)


def has_subgraph(node: NodeProto) -> bool:
    return any(True for _ in subgraphs(node))


def _inner_bytes(node: NodeProto) -> int:
    """Bytes of the constants in a node's subgraphs."""
    found = 0
    for graph in subgraphs(node):
        found += sum(tensor.ByteSize() for tensor in graph.initializer)
        for inner in graph.node:
            found += sum(item.t.ByteSize() for item in inner.attribute if item.HasField("t"))
            found += _inner_bytes(inner)
    return found


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def outer_reads(graph: GraphProto) -> Iterator[str]:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in reads(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def attribute(node: NodeProto, name: str, default: Any = None) -> Any:
    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default


def ints(node: NodeProto, name: str) -> list[int]:
    return [int(item) for item in attribute(node, name, ())]


def to_tensor(name: str, array: np.ndarray) -> TensorProto:
    # ascontiguousarray turns a scalar into a vector of one
    return onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)


def _placeholder(name: str, array: np.ndarray) -> TensorProto:
    tensor = TensorProto(
        name=name,
        data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
        dims=array.shape,
        data_location=TensorProto.EXTERNAL,
    )
    tensor.external_data.add(key="location", value=ASIDE)
    return tensor
