"""Give a graph that reads its data itself inputs in their place: what its iterators gave is fed."""

from __future__ import annotations

from dataclasses import replace

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import ITERATOR, Net
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    full_name,
    make_node,
    node_name,
    tensor_name,
)

NEXT = ("IteratorGetNext", "IteratorGetNextSync")


def feed_iterators(net: Net) -> tuple[Net, dict[str, str]]:
    """The graph, and input → the tensor of the old graph that it stands for."""
    sources = _sources(net)
    if not sources:
        return net, {}
    name_for = Namer(net.nodes)
    inputs = {tensor: name_for(full_name(tensor).replace(":", "_")) for tensor in sources}
    fed = net.rewired(inputs)
    made: dict[str, NodeDef] = {}
    for tensor, name in inputs.items():
        node = net.nodes[node_name(tensor)]
        index = int(full_name(tensor).rpartition(":")[2])
        kind = tf.as_dtype(node.attr["output_types"].list.type[index])
        made[name] = make_node("Placeholder", name, [], dtype=kind)
        made[name].attr["shape"].shape.CopyFrom(node.attr["output_shapes"].list.shape[index])
    outputs = []
    for tensor in net.outputs:  # an output that is data as they were read is handed on
        if tensor in inputs:
            kind = tf.as_dtype(made[inputs[tensor]].attr["dtype"].type)
            same = make_node(
                "Identity", name_for(f"{inputs[tensor]}_read"), [inputs[tensor]], T=kind
            )
            made[same.name] = same
            outputs.append(same.name)
        else:
            outputs.append(tensor)
    starts = {name for name, node in net.nodes.items() if node.op == ITERATOR}
    dropped = starts | {node_name(name) for name in net.inputs} | {*map(node_name, sources)}
    kept = (net.keep - dropped) | {*inputs.values(), *map(node_name, outputs)}
    places = {name: full_name(tensor) for tensor, name in inputs.items()}
    whole = replace(fed.changed(made), inputs=tuple(places), outputs=tuple(outputs), keep=kept)
    return whole.pruned(), places


def _sources(net: Net) -> list[str]:
    """What the graph reads of its iterators, in their order."""
    nexts = {name for name, node in net.nodes.items() if node.op in NEXT}
    read = {tensor_name(item) for node in net.nodes.values() for item in node.input}
    found = {name for name in (*read, *net.outputs) if node_name(name) in nexts and name[:1] != "^"}
    return sorted(found, key=lambda name: (node_name(name), int(full_name(name).rsplit(":")[-1])))
