"""Ops of our own that keep MXNet's default fusions from breaking a graph; they change no value."""

from __future__ import annotations

from lpot.backends.mxnet.graph import Draft, Entry, Graph
from lpot.backends.mxnet.runtime import mx

OWN = "lpot_"  # how the names of these ops begin: the user is not told of them
# Ops that keep the number of dimensions, so that one has to look further up.
SHAPELESS = ("Activation", "LeakyReLU", "Dropout", "clip", "BatchNorm")
FLAT = ("FullyConnected", "Flatten", "Reshape", "null")


def protect(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    return _flatten_inputs(_separate_outputs(symbol))


def _separate_outputs(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """Outputs that the graph itself goes on with get an op of their own.

    The fusions overlook that such a tensor is an output: they swallow it, or lose the op behind
    it. (An identity would not help: it is removed before.)
    """
    readers = Graph.of(symbol).readers
    names = symbol.list_outputs()
    if not any(name in readers for name in names):
        return symbol
    parts = []
    for number, name in enumerate(names):
        part = symbol[number]
        if name in readers:
            part = mx.sym._internal._mul_scalar(part, scalar=1.0, name=f"{OWN}output{number}")
        parts.append(part)
    return mx.sym.Group(parts)


def _flatten_inputs(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """A FullyConnected that flattens its input itself gets a Flatten before it.

    The fused kernel fails at the second run where its input comes in oneDNN's own layout.
    """
    draft = Draft(symbol)
    graph = draft.graph
    count = 0
    for number, node in enumerate(graph.nodes):
        if node.kind != "FullyConnected" or node.attrs.get("flatten", "True") in ("False", "0"):
            continue
        if _root(graph, node.inputs[0]) not in FLAT:
            made = draft.add("Flatten", f"{OWN}flatten{count}", [node.inputs[0]])
            draft.set_inputs(number, [(made, 0), *node.inputs[1:]])
            count += 1
    return draft.symbol() if count else symbol


def _root(graph: Graph, entry: Entry) -> str:
    """The kind of the op that decided the shape of a tensor."""
    node = graph.producer(entry)
    while node.kind in SHAPELESS:
        node = graph.producer(node.inputs[0])
    return node.kind
