"""Graphs that act: a node that does more than compute is found before anything runs.

A graph is a program, and `tune` runs it. TensorFlow's own registry says which ops have no state; a
few of those use files all the same (`NOT_STATELESS`), and most of those with state keep it to
themselves (`HARMLESS`): variables, tables, queues, random numbers, iterators over what is fed.
Every other op is refused, new ones included, unless the model is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tensorflow.python.framework import op_def_registry

from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf
from lpot.backends.tensorflow.structure.nodes import node_name, value_of
from lpot.core.errors import UnsupportedModel
from lpot.core.trust import is_trusted

SAVING = ("Save", "SaveSlices", "SaveV2", "MergeV2Checkpoints")
RESTORING = ("Restore", "RestoreSlice", "RestoreV2")
LOADERS = ("__inference__traced_save", "__inference__traced_restore")  # as TensorFlow names them

Nodes = Mapping[str, NodeDef]

# Without state in the registry, and yet they touch files, other machines or foreign code.
NOT_STATELESS = re.compile(
    r"PyFuncStateless|ReadFile|MatchingFiles|ImmutableConst|GenerateVocabRemapping|Reader\w+"
    r"|Snapshot\w+|RegisterDataset(V2)?|DatasetFromGraph|Debug\w+|CopyHost|Copy|Abort"
    r"|XlaCustomCall(V2)?|MlirPassthroughOp|Rpc|TryRpc|BigQueryReader|_?TPU\w+"
)
# With state in the registry, but of the process's own memory alone.
HARMLESS = re.compile(
    # variables and what trains them
    r"Variable(V2|Shape)?|VarHandleOp|_VarHandlesOp|ReadVariableOp|_ReadVariablesOp"
    r"|VarIsInitializedOp|TemporaryVariable|Assign\w*VariableOp|Resource\w+|DestroyResourceOp"
    r"|DisableCopyOnRead|MakeWeakResourceHandle|IsResourceHandleRefCounting|GuaranteeConst"
    # random numbers
    r"|Random\w+|Stateful\w+|Rng\w+|\w*SeedGenerator|NonDeterministicInts|StatelessRandomGetAlg"
    r"|(Parameterized)?TruncatedNormal|Multinomial|SampleDistortedBoundingBox(V2)?"
    r"|(All|LearnedUnigram|LogUniform|ThreadUnsafeUnigram|Uniform)CandidateSampler"
    # tables (a vocabulary that a SavedModel brings along is a file that is read), lists, queues
    r"|\w*HashTable(V2|OfTensors|OfTensorsV2)?|Lookup\w+|InitializeTable\w*|BoostedTrees\w+"
    r"|Stack\w*|TensorArray\w*|\w*Queue(V2)?|Queue\w+|Barrier\w*|\w*Accumulator|Mutex\w+"
    r"|ConsumeMutexLock|(OrderedMap|Map)\w+|(Uns|S)tage\w*|\w*ManySparse\w+|AddSparseToTensorsMap"
    # iterators, and datasets of what is in the graph or fed
    r"|\w*Iterator(V2|V3|Init)?|IteratorGetNext\w*|IteratorToStringHandle|IteratorFromStringHandle\w*"
    r"|(Experimental)?(Tensor|TensorSlice|SparseTensorSlice|Range|List|Generator|GlobalShuffle"
    r"|ShuffleAndRepeat|Shuffle|Reduce|GroupByReducer|ThreadPool|Random)Dataset(V2|V3)?"
    r"|CacheDatasetV2|DatasetToSingleElement|\w*MemoryCache|(Experimental)?ThreadPoolHandle"
    # flow, checks, and the rest
    r"|If|_If|Case|While|_While|Assert|CheckNumerics(V2)?|Print(V2)?|Empty|DeepCopy|CudnnRNN\w*"
    r"|Timestamp|DeviceIndex|_Arg|_Retval|XlaCallModule|DummyIterationCounter"
)
# Attributes and inputs that name a file, and the values of them that do not.
PLACES: Mapping[str, tuple[str | int, tuple[str, ...]]] = {
    "PrintV2": ("output_stream", ("stdout", "stderr", "log(info)", "log(warning)", "log(error)")),
    "DecodeProtoV2": ("descriptor_source", ("local://", "")),
    "EncodeProto": ("descriptor_source", ("local://", "")),
    "CacheDataset": (1, ("",)),
    "CacheDatasetV2": (1, ("",)),
}
# Datasets whose files the user names, where the graph takes a text.
FED = (
    *("TextLineDataset", "TFRecordDataset", "TFRecordDatasetV2"),
    *("FixedLengthRecordDataset", "FixedLengthRecordDatasetV2"),
)
# What an op that is refused does, as far as its name tells.
DEEDS = {
    "calls back into the Python process that made it": r".*PyFunc.*",
    "writes to the addresses it is given": r"Debug\w+",
    "writes files": r".*(Write|Save|Summary|ToTFRecord|Snapshot|ImportEvent|Dump|Merge).*",
    "reads files": r"Skipgram|.*(Read|Record|File|Restore|Text|CSV|LMDB|Sql|Immutable|Load).*",
    "talks to other machines": r".*(Rpc|BigQuery|RegisterDataset|DataService|Send|Recv|TPU).*",
}
UNKNOWN = "is not among the ops known to do nothing but compute"


def refuse_acts(graph_def: GraphDef, what: str, run: Iterable[str], loading: bool = False) -> None:
    """Raise if running these nodes, with all that they need and call, does more than compute.

    `loading`: they are what TensorFlow runs when it loads a model, which restores its variables
    and may call any function there is.
    """
    if is_trusted():
        return
    running = list(_run(graph_def, run, loading))
    # While it is loaded, what starts an iterator with the names that it is fed does not run.
    told = graph_def.node if loading else [node for node, *_ in running]
    is_told = any(map(_takes_text, told))
    for node, beside, function in running:
        kind = _act(node, beside)
        if kind is None or (is_told and node.op in FED and _constant(node, 0, beside) is None):
            continue
        aside = function.startswith(LOADERS)
        if (aside and node.op in SAVING) or ((aside or loading) and node.op in RESTORING):
            continue
        place = f" (in the function {function!r})" if function else ""
        raise UnsupportedModel(
            f"{what}: node {node.name!r}{place} is a {node.op}, which {kind}: an untrusted model "
            "could do harm with it. If you trust this file, set `model: {trust: true}` in the "
            "yaml, trust=True in Python, or LPOT_TRUST=1"
        )


def _run(
    graph_def: GraphDef, run: Iterable[str], loading: bool
) -> Iterator[tuple[NodeDef, Nodes, str]]:
    """What runs, with the nodes beside it and the name of the function it is in."""
    bodies = {
        function.signature.name: {node.name: node for node in function.node_def}
        for function in graph_def.library.function
    }
    called = list(bodies) if loading else []
    main = {node.name: node for node in graph_def.node}
    waiting, seen = [node_name(name) for name in run if name], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in main:
            continue
        seen.add(name)
        called += _calls(main[name])
        waiting += map(node_name, main[name].input)
        yield main[name], main, ""
    while called:
        body = bodies.pop(called[-1], {})
        function = called.pop()
        for node in body.values():
            called += _calls(node)
            yield node, body, function


def _calls(node: NodeDef) -> Iterator[str]:
    """The functions that a node may call: those it names, or one it is named for."""
    yield node.op
    for value in node.attr.values():
        yield value.func.name
        yield from (function.name for function in value.list.func)


def _act(node: NodeDef, beside: Nodes) -> str | None:
    """What a node may do beyond computing, in a few words."""
    if node.op in PLACES:
        given = _place(node, beside)
        return None if given in PLACES[node.op][1] else f"uses the file {given!r}"
    known = op_def_registry.get(node.op)
    if known is None:  # a function, or an op that TensorFlow will refuse
        return None
    allowed = not NOT_STATELESS.fullmatch(node.op)
    if allowed and (not known.is_stateful or HARMLESS.fullmatch(node.op)):
        return None
    return next((deed for deed, names in DEEDS.items() if re.fullmatch(names, node.op)), UNKNOWN)


def _place(node: NodeDef, beside: Nodes) -> str:
    where, harmless = PLACES[node.op]
    if isinstance(where, str):
        return node.attr[where].s.decode(errors="replace") if where in node.attr else harmless[0]
    found = _constant(node, where, beside)
    return "that it is given" if found is None else found


def _constant(node: NodeDef, at: int, beside: Nodes) -> str | None:
    """The text that a node reads, where it is fixed."""
    source = beside.get(node_name(node.input[at])) if len(node.input) > at else None
    if source is None or source.op != "Const":
        return None
    return b" ".join(value_of(source).reshape(-1).tolist()).decode(errors="replace")


def _takes_text(node: NodeDef) -> bool:
    return node.op == "Placeholder" and bool(node.attr["dtype"].type == tf.string)
