"""Graphs that act: a node that touches files or calls Python is found before anything runs.

A graph is a program. Its arithmetic harms nobody; a few ops of TensorFlow do more than that, and
would do it during `tune`, in a file's name. They are looked for in the graph and in all functions
that it brings along.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from lpot.backends.tensorflow.nodes import node_name
from lpot.backends.tensorflow.runtime import GraphDef, NodeDef
from lpot.core.errors import UnsupportedModel
from lpot.core.trust import is_trusted

SAVING = ("Save", "SaveSlices", "SaveV2", "MergeV2Checkpoints")
RESTORING = ("Restore", "RestoreSlice", "RestoreV2")
READING = ("ReadFile", "MatchingFiles", "WholeFileReader", "WholeFileReaderV2")
WRITING = (
    "WriteFile",
    "SaveDataset",
    "SaveDatasetV2",
    "DistributedSave",
    "SnapshotDataset",
    "SnapshotDatasetV2",
    "SnapshotDatasetReader",
    "WriteAudioSummary",
    "WriteGraphSummary",
    "WriteHistogramSummary",
    "WriteImageSummary",
    "WriteRawProtoSummary",
    "WriteScalarSummary",
    "WriteSummary",
    "CreateSummaryFileWriter",
    "CreateSummaryDbWriter",
    "ImportEvent",
)
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
NETWORK = ("Rpc", "TryRpc", "RpcCall", "RpcServerStart", "BigQueryReader", "RegisterDataset")
DEBUG = "Debug"  # DebugIdentity and its kin write to the urls that they are given
# Attributes that name a file, and values of them that do not.
PLACES = {
    "PrintV2": ("output_stream", ("stdout", "stderr", "log(info)", "log(warning)", "log(error)")),
    "DecodeProtoV2": ("descriptor_source", ("local://", "")),
    "EncodeProto": ("descriptor_source", ("local://", "")),
}
LOADERS = ("__inference__traced_save", "__inference__traced_restore")  # as TensorFlow names them


def refuse_acts(graph_def: GraphDef, what: str, run: Container[str] = ()) -> None:
    """Raise for a graph that acts.

    The ops that save and restore its own variables are part of every graph that was trained: they
    are refused among those that will `run` alone.
    """
    if is_trusted():
        return
    for node, function in _nodes(graph_def):
        kind = _act(node)
        if kind is None:
            continue
        aside = function.startswith(LOADERS) if function else node.name not in run
        if aside and node.op in (*SAVING, *RESTORING):
            continue
        place = f" (in the function {function!r})" if function else ""
        raise UnsupportedModel(
            f"{what}: node {node.name!r}{place} is a {node.op}, which {kind}: an untrusted model "
            "could do harm with it. If you trust this file, set `model: {trust: true}` in the "
            "yaml, trust=True in Python, or LPOT_TRUST=1"
        )


def refuse_acts_of(graph_def: GraphDef, ops: Iterable[str], what: str) -> None:
    """Raise if running these ops, as a loader does, would write."""
    if is_trusted():
        return
    nodes = {node.name: node for node in graph_def.node}
    waiting, seen = [node_name(name) for name in ops if name], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        if nodes[name].op in SAVING:
            raise UnsupportedModel(
                f"{what}: loading it would run node {name!r}, a {nodes[name].op}, which writes "
                "files: a damaged or hostile model"
            )
        waiting += [node_name(source) for source in nodes[name].input]


def _nodes(graph_def: GraphDef) -> Iterator[tuple[NodeDef, str]]:
    for node in graph_def.node:
        yield node, ""
    for function in graph_def.library.function:
        for node in function.node_def:
            yield node, function.signature.name


def _act(node: NodeDef) -> str | None:
    """What a node does beyond arithmetic, in a few words."""
    if node.op in PYTHON:
        return "calls back into the Python process that made it"
    if node.op in (*WRITING, *SAVING):
        return "writes files"
    if node.op in (*READING, *RESTORING):
        return "reads files"
    if node.op in NETWORK:
        return "talks to other machines"
    if node.op.startswith(DEBUG):
        return "writes to the addresses it is given"
    if node.op in PLACES:
        name, harmless = PLACES[node.op]
        given = node.attr[name].s.decode(errors="replace") if name in node.attr else harmless[0]
        return None if given in harmless else f"uses the file {given!r}"
    return None
