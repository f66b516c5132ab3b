"""One graph of two: one to generate tokens with, and one that reads prompts.

Both have the same inputs and outputs; an If on the number of tokens chooses. What both read (norms,
tables, weights in the same format) is stored once, outside of the branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from lpot.backends.onnx.graph import Graph
from lpot.core.errors import UnsupportedModel

IDS = "input_ids"
ONE, AXIS = "phases/one", "phases/axis"


def join_phases(token: Graph, prompt: Graph) -> Graph:
    """`token` for a single token a row, `prompt` for more."""
    weights = _merged(token.weights, prompt.weights)
    weights |= {ONE: np.array(1, np.int64), AXIS: np.array(1, np.int64)}
    nodes = [
        helper.make_node("Shape", [IDS], ["phases/shape"], name="phases/shape"),
        helper.make_node("Gather", ["phases/shape", AXIS], ["phases/tokens"], name="phases/tokens"),
        helper.make_node("Greater", ["phases/tokens", ONE], ["phases/many"], name="phases/many"),
        helper.make_node(
            "If",
            ["phases/many"],
            list(token.outputs),
            name="phases/choose",
            then_branch=_branch(prompt, "prompt"),
            else_branch=_branch(token, "token"),
        ),
    ]
    header = ModelProto()
    header.CopyFrom(token.header)
    known = {item.domain for item in header.opset_import}
    more = [item for item in prompt.header.opset_import if item.domain not in known]
    header.opset_import.extend(more)
    opaque = {**prompt.opaque, **token.opaque}
    return Graph(header, tuple(nodes), weights, opaque, token.types, token.shapes)


def _branch(graph: Graph, word: str) -> GraphProto:
    """The nodes with names of their own; inputs and weights are those outside."""
    outside = {*graph.inputs, *graph.weights, *graph.opaque, ""}

    def renamed(names: Iterable[str]) -> list[str]:
        return [name if name in outside else f"{word}/{name}" for name in names]

    nodes = []
    for node in graph.nodes:
        if any(attribute.HasField("g") for attribute in node.attribute):
            raise UnsupportedModel(f"{node.name} has its own branches: the phases can't be joined")
        copied = NodeProto()
        copied.CopyFrom(node)
        copied.input[:], copied.output[:] = renamed(node.input), renamed(node.output)
        copied.name = f"{word}/{node.name}"
        nodes.append(copied)
    outputs = []
    for value, name in zip(graph.header.graph.output, renamed(graph.outputs), strict=True):
        copied_value = ValueInfoProto()
        copied_value.CopyFrom(value)
        copied_value.name = name
        outputs.append(copied_value)
    return helper.make_graph(nodes, word, [], outputs)


def _merged(
    one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    for name in set(one) & set(other):
        if one[name] is not other[name] and not np.array_equal(one[name], other[name]):
            raise UnsupportedModel(f"the weight {name!r} differs between the phases")
    return {**one, **other}
