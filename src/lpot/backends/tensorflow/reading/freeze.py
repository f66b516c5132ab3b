"""Variables made constants: checkpoints, SavedModels and Keras models as one GraphDef."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from lpot.backends.tensorflow.reading.boundary import results
from lpot.backends.tensorflow.reading.call_form import CallForm
from lpot.backends.tensorflow.reading.refuse import refuse_acts
from lpot.backends.tensorflow.run import first_line, session_config
from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf, v1
from lpot.backends.tensorflow.structure.graph import ITERATOR, Net
from lpot.backends.tensorflow.structure.nodes import node_name
from lpot.backends.tensorflow.structure.tables import captured_tables, session_tables, with_tables
from lpot.core.backend import ModelSpec
from lpot.core.errors import ConfigError, UnsupportedModel, did_you_mean

# Weights above this can't be put into one GraphDef, whose limit is 2 GiB.
LIMIT = 2**31 - 2**26
VARIABLES = ("VariableV2", "Variable", "VarHandleOp")
READERS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")
ONLY_READ = "_read_only_resource_inputs"  # TensorFlow's own mark

Call = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Frozen:
    """A graph without variables; `signature` maps a SavedModel's keys to tensors."""

    graph_def: GraphDef
    form: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    signature: dict[str, dict[str, str]] = field(default_factory=dict)
    form_of_call: CallForm | None = None
    called: Call | None = None  # the model itself, where it was traced here
    variables: tuple[Any, ...] = ()

    def resolved(self, names: Sequence[str], side: str) -> tuple[str, ...]:
        """Signature keys turned into tensors; other names pass."""
        keys = self.signature.get(side, {})
        nodes = {node.name for node in self.graph_def.node} if keys else set()
        for name in names:
            if keys and name not in keys and node_name(name) not in nodes:
                raise ConfigError(
                    f"{name!r} is neither a key of the signature ({', '.join(keys)}) nor a node"
                    f"{did_you_mean(name, (*keys, *nodes))}",
                    path=f"model.{side}",
                )
        return tuple(keys.get(name, name) for name in names)


def is_ckpt_format(path: str | Path) -> bool:
    """Does the directory hold a checkpoint with its graph (.meta and .index of one name)?"""
    return checkpoint_prefix(Path(path)) is not None


def is_saved_model_format(path: str | Path) -> bool:
    """Does the directory hold a SavedModel?"""
    folder = Path(path)
    return any((folder / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt"))


def checkpoint_prefix(path: Path) -> str | None:
    """The checkpoint that a directory or prefix stands for; the latest where there are several."""
    if not path.is_dir():
        return str(path) if _has_graph(str(path)) else None
    latest = tf.train.latest_checkpoint(str(path))
    if latest is not None and _has_graph(latest):
        return str(latest)
    graphs = sorted(path.glob("*.meta"), key=lambda item: item.stat().st_mtime)
    found = [
        prefix for prefix in (str(item)[: -len(".meta")] for item in graphs) if _has_graph(prefix)
    ]
    return found[-1] if found else None


def _has_graph(prefix: str) -> bool:
    """Prefixes are text, not paths: `folder/` is one, of the files `.meta` and `.index` in it."""
    return all(Path(f"{prefix}{suffix}").is_file() for suffix in (".meta", ".index"))


def checkpoint(path: Path, spec: ModelSpec) -> Frozen:
    prefix = checkpoint_prefix(path)
    if prefix is None:
        raise UnsupportedModel(f"{path}: no checkpoint with both .meta and .index files")
    graph = tf.Graph()
    try:
        with graph.as_default(), v1.Session(graph=graph, config=session_config()) as session:
            saver = v1.train.import_meta_graph(f"{prefix}.meta", clear_devices=True)
            if saver is None:
                raise UnsupportedModel(f"{prefix}.meta: the graph has no variables to restore")
            graph_def = graph.as_graph_def()
            refuse_acts(graph_def, prefix, [saver.as_saver_def().restore_op_name], loading=True)
            _ends(graph_def, spec.outputs)  # what can't be frozen needs no restoring
            saver.restore(session, prefix)
            return Frozen(constants(session, spec.outputs), "checkpoint")
    except (DecodeError, OSError, ValueError, tf.errors.OpError) as error:
        raise UnsupportedModel(
            f"{prefix}: the checkpoint can't be read ({first_line(error)})"
        ) from error


def live_graph(graph: tf.Graph, spec: ModelSpec) -> Frozen:
    session = v1.get_default_session()
    if session is not None and session.graph is graph:
        return live_session(session, spec)
    try:
        return Frozen(graph.as_graph_def(), "graph")
    except ValueError as error:
        raise UnsupportedModel(
            f"the tf.Graph given can't be written as one GraphDef, whose limit is 2 GiB "
            f"({first_line(error)}): give the SavedModel or checkpoint it comes from"
        ) from error


def live_session(session: v1.Session, spec: ModelSpec) -> Frozen:
    return Frozen(constants(session, spec.outputs), "graph")


def constants(session: v1.Session, outputs: Sequence[str]) -> GraphDef:
    """The part of a session's graph that the outputs need, with variables as constants."""
    graph_def = session.graph.as_graph_def()
    names = _ends(graph_def, outputs)
    frozen = v1.graph_util.convert_variables_to_constants(session, graph_def, names)
    return with_tables(frozen, session_tables(session, frozen))


def _ends(graph_def: GraphDef, outputs: Sequence[str]) -> list[str]:
    """The nodes to freeze up to, once it is known that one graph can hold their weights."""
    names = [node_name(name) for name in outputs]
    known = {node.name for node in graph_def.node}
    for name in names:
        if name not in known:
            raise ConfigError(
                f"the graph has no node {name!r}{did_you_mean(name, known)}", path="model.outputs"
            )
    if not names:
        names = results(graph_def)
    names += [node.name for node in graph_def.node if node.op == ITERATOR]
    net = Net.of(graph_def, (), ())
    nodes = [net.nodes[name] for name in net.ancestors(names)]
    _check_size(sum(_variable_size(node) for node in nodes if node.op in VARIABLES))
    return names


def _variable_size(node: NodeDef) -> int:
    shape = tf.TensorShape(node.attr["shape"].shape)
    return int(shape.num_elements() or 0) * int(tf.as_dtype(node.attr["dtype"].type).size)


def _check_size(size: int) -> None:
    if size > LIMIT:
        raise UnsupportedModel(
            f"the weights are {size / 2**30:.1f} GiB: more than one graph can hold (2 GiB). "
            "Convert it to ONNX (python -m tf2onnx.convert --large_model), where bigger models work"
        )


def concrete(function: Any, form: str, called: Call | None = None) -> Frozen:
    """A ConcreteFunction with its variables as constants and its calls inlined.

    Where `called` is given, it was traced from that.
    """
    try:
        return _concrete(function, function, form, called)
    except UnsupportedModel:
        without = None if called is None else _without_writes(function, called)
        if without is None:
            raise
        return _concrete(without, function, form, called)


def _without_writes(function: Any, called: Call) -> Any:
    """What the outputs need alone; None where that reads a variable which the function changes.

    Keras's recurrent layers count up the seed of their dropout in each call, training or not.
    """
    nest: Any = function.structured_input_signature
    specs = tf.nest.flatten(nest)
    if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        return None

    def flat(*given: Any) -> Any:
        args, kwargs = tf.nest.pack_sequence_as(nest, given)
        return tf.nest.flatten(getattr(called, "python_function", called)(*args, **kwargs))

    whole = v1.wrap_function(flat, specs)  # one in which nothing runs for its effects alone
    fetches = [whole.graph.get_tensor_by_name(tensor.name) for tensor in whole.outputs]
    pruned = whole.prune(whole.inputs, fetches, input_signature=(tuple(specs), {}))
    written = _written(function.graph)
    reads = (id(outer) for outer, inner in pruned.graph.captures if inner.consumers())
    return None if any(one in written for one in reads) else pruned


def _written(graph: Any) -> set[int]:
    """The variables outside of a function that its ops may change."""
    outer = {inner.name: id(outer) for outer, inner in graph.captures}
    found = set()
    for op in graph.get_operations():
        reads = op.type in READERS
        only_read = op.node_def.attr[ONLY_READ].list.i  # by the functions that an op calls
        for at, tensor in enumerate(op.inputs):
            if tensor.name in outer and not reads and at not in only_read:
                found.add(outer[tensor.name])
    return found


def _concrete(function: Any, traced: Any, form: str, called: Call | None) -> Frozen:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    size = sum(v.shape.num_elements() * v.dtype.size for v in function.variables)
    _check_size(size)
    try:
        frozen = convert_variables_to_constants_v2(
            function, lower_control_flow=False, aggressive_inlining=True
        )
    except (ValueError, tf.errors.OpError) as error:
        raise UnsupportedModel(
            f"the model can't be frozen ({first_line(error)}): does it change its own variables, "
            "as stateful layers and counters do? Leave that out (stateful=False)"
        ) from error
    graph_def = frozen.graph.as_graph_def()
    keep_inputs(graph_def, frozen.inputs)
    tables = captured_tables(function, graph_def)
    inputs = [tensor.name for tensor in frozen.inputs if node_name(tensor.name) not in tables]
    outputs = [tensor.name for tensor in frozen.outputs]
    structure: Any = traced.structured_input_signature
    keys = sorted(structure[1] if structure else ())
    if len(keys) != len(inputs):  # some are given by position
        keys = [node_name(name) for name in inputs]
    return Frozen(
        with_tables(graph_def, tables),
        form,
        tuple(inputs),
        tuple(outputs),
        {
            "inputs": _by_name(keys, inputs),
            "outputs": dict(zip(_output_keys(traced, outputs), outputs, strict=True)),
        },
        CallForm.of(traced, inputs, outputs),
        called,
        tuple(function.variables),
    )


def keep_inputs(graph_def: GraphDef, inputs: Iterable[tf.Tensor]) -> None:
    """Freezing drops placeholders that no output needs; callers go on feeding them."""
    names = {node.name for node in graph_def.node}
    for tensor in inputs:
        if tensor.op.name not in names:
            node = graph_def.node.add(name=tensor.op.name, op="Placeholder")
            node.attr["dtype"].type = tensor.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())


def _by_name(keys: list[str], tensors: list[str]) -> dict[str, str]:
    nodes = {node_name(tensor): tensor for tensor in tensors}
    if all(key in nodes for key in keys):
        return {key: nodes[key] for key in keys}
    return dict(zip(keys, tensors, strict=False))


def _output_keys(function: Any, outputs: list[str]) -> list[str]:
    structure = function.structured_outputs
    if isinstance(structure, dict) and len(structure) == len(outputs):
        return sorted(structure)
    return [f"output_{index}" for index in range(len(outputs))]
