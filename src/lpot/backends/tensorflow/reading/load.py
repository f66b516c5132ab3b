"""Every form a TensorFlow model comes in, read to one frozen graph with inputs and outputs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from lpot.backends.tensorflow.reading import freeze, freeze_keras, freeze_saved
from lpot.backends.tensorflow.reading.boundary import settle
from lpot.backends.tensorflow.reading.call_form import CallForm
from lpot.backends.tensorflow.reading.callable_graph import CallableGraph
from lpot.backends.tensorflow.reading.freeze import (
    VARIABLES,
    Frozen,
    is_ckpt_format,
    is_saved_model_format,
)
from lpot.backends.tensorflow.reading.freeze_function import functions_of
from lpot.backends.tensorflow.reading.refuse import refuse_acts
from lpot.backends.tensorflow.run import feed, import_graph
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.backends.tensorflow.structure.graph import Net, lightened
from lpot.backends.tensorflow.structure.nodes import node_name, tensor_name
from lpot.backends.tensorflow.structure.tables import settle_tables
from lpot.core.backend import ModelSpec
from lpot.core.batch import as_array, split
from lpot.core.errors import DataError, UnsupportedModel, first_line
from lpot.core.tune import guarded

logger = logging.getLogger(__name__)

ACCEPTED = (
    "a path (.pb with or without suffix, SavedModel or checkpoint directory, .keras, .h5, .hdf5), "
    "a GraphDef, a tf.Graph, a Keras model, a tf.function, a ConcreteFunction or a tf.Module"
)
COLOCATED = "_class"
ROUNDING = 1e-2  # by which kernels that sum in another order may differ, as a share of the values
FEW = 0.05  # of the classes that may differ for it
LIMIT = 2**31 - 1
# Models converted for other runtimes: what they were made from is what can be tuned.
CONVERTED = {
    ".tflite": "a TensorFlow Lite model, converted for another runtime",
    ".json": "a TensorFlow.js model (or another JSON file)",
    ".tfjs": "a TensorFlow.js model",
}
KERAS_FILES = (".keras", ".h5", ".hdf5")
FOREIGN = (
    (b"PK\x03\x04", "a zip archive: a .keras file under another name, or PyTorch's?"),
    (b"\x89HDF", "an HDF5 file: give it the suffix .h5 to be read as a Keras model"),
    (b"\x80\x02", "a Python pickle, which is never opened here"),
    (b"\x80\x04", "a Python pickle, which is never opened here"),
    (b"version https://git-lfs", "a Git LFS pointer: fetch the real file with `git lfs pull`"),
)


@dataclass(frozen=True, eq=False)
class Loaded:
    """A frozen net, what form it came in, from where, and its signature's keys."""

    net: Net
    form: str
    source: str = ""
    signature: dict[str, dict[str, str]] = field(default_factory=dict)
    form_of_call: CallForm | None = None
    keras: Callable[[], Any] | None = None  # what it was frozen from, where that was a Keras model


def load(source: Any, spec: ModelSpec) -> Loaded:
    if isinstance(source, str | os.PathLike):
        return _load_path(Path(source), spec)
    if isinstance(source, GraphDef):
        copy = GraphDef()
        copy.CopyFrom(source)  # the caller's object is never touched
        return _finish(Frozen(copy, "graph_def"), spec, "the GraphDef given")
    if isinstance(source, tf.Graph):
        return _finish(freeze.live_graph(source, spec), spec, "the tf.Graph given")
    if isinstance(source, v1.Session):
        return _finish(freeze.live_session(source, spec), spec, "the Session given")
    if isinstance(source, tf.keras.Model):
        found = _same(freeze_keras.keras_models(source, spec), spec, "the Keras model given")
        return replace(found, keras=lambda: source)
    if hasattr(source, "structured_input_signature"):
        frozen = freeze.concrete(source, "function", source)
        return _same(iter([frozen]), spec, "the function given")
    if getattr(source, "signatures", None):
        frozen = freeze_saved.signatures(source, "the object given", spec)
        return _same(iter([frozen]), spec, "the object given")
    if isinstance(source, tf.Module) or hasattr(source, "get_concrete_function"):
        return _same(functions_of(source, spec), spec, "the function given")
    name = f"{type(source).__module__}.{type(source).__qualname__}"
    if "estimator" in name.lower():
        raise UnsupportedModel(
            f"{name}: estimators were removed from TensorFlow in 2.16; export it with "
            "export_saved_model(dir, serving_input_fn) where it runs and give that directory"
        )
    raise UnsupportedModel(f"the TensorFlow backend was given a {name}: it takes {ACCEPTED}")


def _load_path(path: Path, spec: ModelSpec) -> Loaded:
    if not path.exists() and path.with_name(f"{path.name}.pb").is_file():
        path = path.with_name(f"{path.name}.pb")
    if path.is_dir():
        return _load_folder(path, spec)
    if path.name == "saved_model.pb" and is_saved_model_format(path.parent):
        return _load_folder(path.parent, spec)
    if not path.exists() and freeze.checkpoint_prefix(path) is not None:
        return _finish(freeze.checkpoint(path, spec), spec, str(path), path)
    if not path.is_file():
        near = (
            sorted(item.name for item in path.parent.glob("*.pb"))[:5]
            if path.parent.is_dir()
            else []
        )
        hint = f"; its folder has {', '.join(near)}" if near else ""
        raise UnsupportedModel(f"{path}: no such file{hint}")
    if path.name == ".meta":  # of a checkpoint without a name
        return _finish(freeze.checkpoint(path.parent, spec), spec, str(path), path)
    if path.suffix == ".meta":
        return _finish(freeze.checkpoint(path.with_suffix(""), spec), spec, str(path), path)
    if path.suffix.lower() in KERAS_FILES:
        model = freeze_keras.read_keras(path)
        loaded = _same(freeze_keras.keras_models(model, spec), spec, str(path), path)
        return replace(loaded, keras=partial(freeze_keras.read_keras, path))
    if path.suffix.lower() in CONVERTED:
        raise UnsupportedModel(
            f"{path}: {CONVERTED[path.suffix.lower()]}; give the SavedModel, Keras file or frozen "
            "graph that it was made from"
        )
    return _finish(Frozen(read_graph_def(path), "pb"), spec, str(path), path)


def _load_folder(path: Path, spec: ModelSpec) -> Loaded:
    if is_ckpt_format(path):
        others = [name for name in ("saved_model", "saved_model.pb") if (path / name).exists()]
        if others:
            logger.info("%s holds a checkpoint and %s: it is read as a checkpoint", path, others[0])
        return _finish(freeze.checkpoint(path, spec), spec, str(path), path)
    if is_saved_model_format(path):
        return _finish(freeze_saved.saved_model(path, spec), spec, str(path), path)
    names = sorted(item.name for item in path.iterdir())[:8]
    indices = [name for name in names if name.endswith(".index")]
    if indices:
        raise UnsupportedModel(
            f"{path}: the checkpoint {indices[0]} has no .meta file, which holds its graph; save "
            "it with tf.compat.v1.train.Saver, or give a SavedModel or frozen .pb"
        )
    graphs = sorted(path.glob("*.pb")) or sorted(path.glob("model.json"))
    if len(graphs) == 1:
        return _load_path(graphs[0], spec)
    raise UnsupportedModel(
        f"{path}: neither a SavedModel (saved_model.pb) nor a checkpoint (.meta and .index); "
        f"it holds {names or 'nothing'}"
    )


def read_graph_def(path: Path) -> GraphDef:
    """A frozen graph from a file that is not trusted."""
    size = path.stat().st_size
    if size == 0:
        raise UnsupportedModel(f"{path}: the file is empty (an interrupted download or export?)")
    if size > LIMIT:
        raise UnsupportedModel(
            f"{path}: {size / 2**30:.1f} GiB; a frozen graph can't be over 2 GiB. Give the "
            "SavedModel it was made from, or export it to ONNX, where bigger models work"
        )
    data = path.read_bytes()
    for magic, meaning in FOREIGN:
        if data.startswith(magic):
            raise UnsupportedModel(f"{path}: not a frozen graph but {meaning}")
    graph_def = GraphDef()
    try:
        if path.suffix == ".pbtxt":
            text_format.Parse(data.decode(), graph_def)
        else:
            graph_def.ParseFromString(data)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise UnsupportedModel(
            f"{path}: not a readable GraphDef ({first_line(error)}): truncated, or "
            f"another format? {ACCEPTED} can be given"
        ) from error
    return graph_def


def _same(ways: Iterator[Frozen], spec: ModelSpec, what: str, path: Path | None = None) -> Loaded:
    """The first graph that gives what the model gives, on the first batch where there is one."""
    told = ""
    for frozen in ways:
        loaded = _finish(frozen, spec, what, path)
        told = _difference(loaded, frozen, spec)
        if not told:
            return loaded
        logger.info("%s: traced, %s", what, told)
    raise UnsupportedModel(
        f"{what} can't be made a graph that does the same: {told}. Give the function of one size, "
        "tf.function(model).get_concrete_function(tf.TensorSpec(…)), if that does"
    )


def _difference(loaded: Loaded, frozen: Frozen, spec: ModelSpec) -> str:
    """What the graph does otherwise than the model it was traced from; empty if nothing."""
    net, form, called = loaded.net, loaded.form_of_call, frozen.called
    raw = None if spec.sample is None else spec.sample()
    is_whole = net.outputs == tuple(map(tensor_name, frozen.outputs))
    if raw is None or form is None or called is None or not is_whole:
        return ""
    graph = CallableGraph(net)
    kept = [(item, item.numpy()) for item in frozen.variables if not item.trainable]
    try:
        inputs = split(raw, net.inputs).inputs
        fed = {tensor_name(name): value for name, value in feed(graph.specs, inputs).items()}
        first, again = (guarded(lambda: _arrays(form.call(called, fed))) for _ in range(2))
        given = guarded(lambda: _arrays(graph(fed)))
    except DataError:  # a batch of another layout, of which others tell
        return ""
    finally:
        graph.close()
        for item, value in kept:  # seeds of random numbers, counters
            item.assign(value)
    if isinstance(first, Exception) or isinstance(again, Exception):
        return ""
    if isinstance(given, Exception):
        return f"it fails on the first batch ({first_line(given)})"
    for at, (ours, theirs, mine) in enumerate(zip(given, first, again, strict=True)):
        if ours.shape != theirs.shape:
            return f"output {at} has the shape {ours.shape} where the model's has {theirs.shape}"
        if not _is_like(ours, theirs) and _is_like(mine, theirs):
            return f"output {at} has other values than the model's"
    return ""


def _arrays(found: Any) -> list[np.ndarray]:
    return [as_array(item) for item in tf.nest.flatten(found)]


def _is_like(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """The same but for rounding. Of classes and counts, some may stand just between two."""
    if theirs.dtype.kind not in "fc":
        return bool(np.mean(ours != theirs) <= FEW) if theirs.size else True
    error, power = np.nan_to_num(ours - theirs), np.nan_to_num(theirs)
    alike = np.array_equal(np.isnan(ours), np.isnan(theirs))
    return bool(alike and np.linalg.norm(error) <= ROUNDING * np.linalg.norm(power))


def _finish(frozen: Frozen, spec: ModelSpec, what: str, path: Path | None = None) -> Loaded:
    graph_def = frozen.graph_def
    _check_nodes(graph_def, what)
    for node in chain(graph_def.node, *(f.node_def for f in graph_def.library.function)):
        # On one CPU all stand together, and passes remove nodes.
        node.attr.pop(COLOCATED, None)
        node.device = ""
    settle_tables(graph_def)
    graph = import_graph(lightened(graph_def, graph_def.node))
    asked = ModelSpec(
        spec.name,
        frozen.resolved(spec.inputs, "inputs") or frozen.inputs,
        frozen.resolved(spec.outputs, "outputs") or frozen.outputs,
    )
    net = settle(graph_def, graph, asked)
    refuse_acts(graph_def, what, run=net.keep)
    variables = [n for n in net.ancestors(net.outputs) if net.nodes[n].op in VARIABLES]
    if variables:
        raise UnsupportedModel(
            f"{what}: the graph holds {len(variables)} variable(s) ({variables[0]!r}, …) without "
            "their values; give the checkpoint directory, or freeze it first"
        )
    place = "" if path is None else str(path)
    return Loaded(net, frozen.form, place, frozen.signature, frozen.form_of_call)


def _check_nodes(graph_def: GraphDef, what: str) -> None:
    if not graph_def.node:
        raise UnsupportedModel(f"{what}: the graph has no nodes (an empty or foreign file?)")
    names = {node.name for node in graph_def.node}
    if len(names) != len(graph_def.node) or "" in names:
        raise UnsupportedModel(f"{what}: node names are empty or not unique: a damaged file?")
    for node in graph_def.node:
        for source in node.input:
            if node_name(source) not in names:
                raise UnsupportedModel(
                    f"{what}: node {node.name!r} reads {source!r}, which the graph does not have: "
                    "a damaged or partial file?"
                )
        if node.op in ("PyFunc", "EagerPyFunc", "PyFuncStateless"):
            raise UnsupportedModel(
                f"{what}: node {node.name!r} calls back into the Python process that made it; "
                "it can't be run from a file or copied"
            )


def get_graph_def(
    model: Any, outputs: Sequence[str] = (), auto_input_output: bool = False
) -> GraphDef:
    """The frozen graph of a model in any form. `auto_input_output` is of the original: ours always
    finds what is not named.
    """
    names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    return load(model, ModelSpec(outputs=names)).net.graph_def()


def get_slim_graph(model: Any, *args: Any, **kwargs: Any) -> GraphDef:
    raise UnsupportedModel(
        f"{model}: TF-Slim needs TensorFlow 1 and its own Python code to rebuild the graph; freeze "
        "the model where TF-Slim runs (export_inference_graph, freeze_graph) and give the .pb"
    )
