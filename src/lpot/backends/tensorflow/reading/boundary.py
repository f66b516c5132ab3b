"""Where a graph begins and ends: names from the user are checked, missing ones are found."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lpot.backends.tensorflow.runtime import GraphDef, tf
from lpot.backends.tensorflow.structure.graph import ITERATOR, MERGE, Net
from lpot.backends.tensorflow.structure.nodes import node_name, tensor_name
from lpot.core.backend import ModelSpec
from lpot.core.errors import ConfigError, UnsupportedModel, did_you_mean

logger = logging.getLogger(__name__)

PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
# Ends of a graph that nobody means as its result: saving, summaries, initialisers, leftovers.
NOT_RESULTS = (
    *PLACEHOLDERS,
    ITERATOR,
    "IteratorToStringHandle",
    "PlaceholderWithDefault",
    "Const",
    "NoOp",
    "Assert",
    "Print",
    "VariableV2",
    "Variable",
    "VarHandleOp",
    "Assign",
    "AssignVariableOp",
    "RestoreV2",
    "SaveV2",
    "MergeV2Checkpoints",
    "ShardedFilename",
    "ScalarSummary",
    "HistogramSummary",
    "ImageSummary",
    "MergeSummary",
    "WriteSummary",
)
FED = (*PLACEHOLDERS, "IteratorV2", "Iterator", "IteratorGetNext")
PLUMBING = ("Shape", "Size", "Rank", "StridedSlice", "Pack", "Range")


def settle(graph_def: GraphDef, graph: tf.Graph, spec: ModelSpec) -> Net:
    """The graph with its ends: as the user says, else found and told in the log."""
    nodes = {node.name: node for node in graph_def.node}
    iterators = [name for name, node in nodes.items() if node.op == ITERATOR]
    outputs = _checked(spec.outputs, "model.outputs", graph) or _find_outputs(graph_def, graph)
    if not outputs:
        raise UnsupportedModel(
            "the graph has no output that could be found: name them in model.outputs "
            f"(it ends in {', '.join(sorted({n.op for n in nodes.values()})[:8])})"
        )
    inputs = _checked(spec.inputs, "model.inputs", graph)
    net = Net.of(graph_def, inputs, outputs, iterators)
    needed = _needed_placeholders(net, (*outputs, *iterators), set(map(node_name, inputs)))
    if not inputs:
        inputs = needed
        net = Net.of(graph_def, inputs, outputs, iterators)
    elif missing := [name for name in needed if name not in inputs]:
        raise ConfigError(
            f"{list(spec.inputs)} do not feed the whole graph: the placeholder(s) {missing} are "
            "needed by the outputs too; add them, or choose outputs that do not need them",
            path="model.inputs",
        )
    if not (spec.inputs and spec.outputs):
        logger.info("inputs %s, outputs %s", list(inputs), list(outputs))
    return net


def _checked(names: Sequence[str], path: str, graph: tf.Graph) -> list[str]:
    known = {operation.name: operation for operation in graph.get_operations()}
    found = []
    for name in names:
        operation = known.get(node_name(name))
        if operation is None:
            raise ConfigError(
                f"the graph has no node {node_name(name)!r}{did_you_mean(node_name(name), known)}",
                path=path,
            )
        number = name.partition(":")[2] or "0"
        index = int(number) if number.isdigit() else -1
        if not 0 <= index < len(operation.outputs):
            raise ConfigError(
                f"{name!r}: the node {operation.name!r} ({operation.type}) has "
                f"{len(operation.outputs)} output(s)",
                path=path,
            )
        found.append(tensor_name(f"{operation.name}:{index}"))
    return found


def _find_outputs(graph_def: GraphDef, graph: tf.Graph) -> list[str]:
    return [
        tensor_name(tensor.name)
        for name in results(graph_def)
        for tensor in graph.get_operation_by_name(name).outputs
    ]


def results(graph_def: GraphDef) -> list[str]:
    """The nodes at the end of a graph that depend on what is fed to it."""
    net = Net.of(graph_def, (), ())
    read = {node_name(name) for node in graph_def.node for name in node.input}
    ends = [node for node in graph_def.node if node.name not in read and node.op not in NOT_RESULTS]
    # What stands inside a conditional has no value when the other branch is taken.
    within = {name for name in net.in_branch if net.nodes[name].op not in MERGE}
    ends = [node for node in ends if node.name not in within] or ends
    # Saving, restoring and initialising depend on constants and variables alone.
    fed = {name for name, node in net.nodes.items() if node.op in FED}
    ends = [node for node in ends if fed & net.ancestors([node.name])] or ends
    # Shapes computed and never used are leftovers, unless there is nothing else.
    ends = [node for node in ends if node.op not in PLUMBING] or ends
    return [node.name for node in ends]


def _needed_placeholders(net: Net, ends: Sequence[str], cut: set[str]) -> list[str]:
    """Placeholders the ends depend on, when the graph is fed at `cut`."""
    seen: set[str] = set()
    front = [node_name(name) for name in ends]
    while front:
        name = front.pop()
        if name in seen or name in cut or name not in net.nodes:
            continue
        seen.add(name)
        front.extend(map(node_name, net.nodes[name].input))
    return [name for name in net.nodes if name in seen and net.nodes[name].op in PLACEHOLDERS]
