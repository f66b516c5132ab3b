"""SavedModels of TensorFlow 1 and 2, with the signature that is asked for, as one GraphDef."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from lpot.backends.tensorflow.reading.freeze import Frozen, concrete, constants, keep_inputs
from lpot.backends.tensorflow.reading.refuse import refuse_acts
from lpot.backends.tensorflow.run import first_line, session_config
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.core.backend import ModelSpec
from lpot.core.errors import ConfigError, UnsupportedModel, did_you_mean
from lpot.core.tune import guarded

logger = logging.getLogger(__name__)

SERVING = "serving_default"
CALLS = ("PartitionedCall", "StatefulPartitionedCall")

# What TensorFlow raises for files that are damaged, or hold ops that it does not know.
DAMAGE = (
    *(DecodeError, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError),
    tf.errors.OpError,
)


def saved_model(path: Path, spec: ModelSpec) -> Frozen:
    from tensorflow.python.saved_model import loader_impl

    try:
        parsed = loader_impl.parse_saved_model(str(path))
        for meta in parsed.meta_graphs:
            refuse_acts(meta.graph_def, str(path), _initial(meta), loading=True)
        tags = _tags([list(meta.meta_info_def.tags) for meta in parsed.meta_graphs], path)
        if any(meta.HasField("object_graph_def") for meta in parsed.meta_graphs):
            loaded = _objects(path, tags)
            if loaded is not None:
                return signatures(loaded, str(path), spec)
        return _saved_model_v1(path, tags, spec)
    except DAMAGE as error:
        raise UnsupportedModel(
            f"{path}: the SavedModel can't be read ({first_line(error)})"
        ) from error


def _initial(meta: v1.MetaGraphDef) -> list[str]:
    """The ops that TensorFlow runs when it loads a SavedModel."""
    found = [meta.saver_def.restore_op_name]
    for key in ("saved_model_main_op", "legacy_init_op"):
        if key in meta.collection_def:
            found += meta.collection_def[key].node_list.value
    key = "__saved_model_init_op"
    if key in meta.signature_def:
        found += [info.name for info in meta.signature_def[key].outputs.values()]
    return found


def _tags(found: list[list[str]], path: Path) -> list[str]:
    """Of several graphs in one file the one that serves."""
    serving = v1.saved_model.tag_constants.SERVING
    if len(found) == 1:
        return found[0]
    chosen = [tags for tags in found if tags == [serving]] or [t for t in found if serving in t]
    if not chosen:
        raise UnsupportedModel(f"{path}: none of its graphs is tagged {serving!r}, but {found}")
    return chosen[0]


def _objects(path: Path, tags: list[str]) -> Any:
    """The SavedModel with its functions; None where TensorFlow can't rebuild its objects.

    Those of other versions of Keras (an optimizer's slots) can be more than it knows; the graph
    and its variables can then still be loaded as TensorFlow 1 did.
    """
    found = guarded(lambda: tf.saved_model.load(str(path), tags))
    if isinstance(found, Exception):
        logger.info("%s: its objects can't be rebuilt (%s): its graph is read instead", path, found)
        return None
    return found


def _saved_model_v1(path: Path, tags: list[str], spec: ModelSpec) -> Frozen:
    """A SavedModel of TensorFlow 1: its graph's own names are kept."""
    with v1.Session(graph=tf.Graph(), config=session_config()) as session:
        meta = v1.saved_model.load(session, tags, str(path))
        key = _choose(list(meta.signature_def), str(path), spec.signature)
        chosen = meta.signature_def[key]
        inputs = {key: chosen.inputs[key].name for key in sorted(chosen.inputs)}
        outputs = {key: chosen.outputs[key].name for key in sorted(chosen.outputs)}
        graph_def = constants(session, tuple(outputs.values()))
        keep_inputs(graph_def, map(session.graph.get_tensor_by_name, inputs.values()))
    if any(node.op in CALLS for node in graph_def.node):
        return _inlined(graph_def, inputs, outputs)
    return Frozen(
        graph_def,
        "saved_model",
        tuple(inputs.values()),
        tuple(outputs.values()),
        {"inputs": inputs, "outputs": outputs},
    )


def _inlined(graph_def: GraphDef, inputs: dict[str, str], outputs: dict[str, str]) -> Frozen:
    """A graph that calls functions, as TensorFlow 2 saves it, with their ops in their place."""
    _rename_functions(graph_def)
    wrapped = v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph_def, name=""), [])
    tensor = wrapped.graph.get_tensor_by_name
    function = wrapped.prune(
        [tensor(name) for name in inputs.values()], [tensor(name) for name in outputs.values()]
    )
    frozen = concrete(function, "saved_model")
    keys = {
        "inputs": dict(zip(inputs, frozen.inputs, strict=True)),
        "outputs": dict(zip(outputs, frozen.outputs, strict=True)),
    }
    return replace(frozen, signature=keys, form_of_call=None)


def _rename_functions(graph_def: GraphDef) -> None:
    """Function names are known to the whole process: another model's must not be meant."""
    mark = hashlib.sha256(graph_def.SerializeToString(deterministic=True)).hexdigest()[:12]
    names = {function.signature.name for function in graph_def.library.function}
    bodies = (function.node_def for function in graph_def.library.function)
    for node in chain(graph_def.node, *bodies):
        for value in node.attr.values():
            for called in (value.func, *value.list.func) if _has_function(value) else ():
                if called.name in names:
                    called.name = f"{called.name}_{mark}"
    for function in graph_def.library.function:
        function.signature.name = f"{function.signature.name}_{mark}"
    del graph_def.library.gradient[:]


def _has_function(value: Any) -> bool:
    return bool(value.HasField("func") or value.list.func)


def signatures(loaded: Any, what: str, spec: ModelSpec) -> Frozen:
    found = loaded.signatures
    return concrete(found[_choose(list(found), what, spec.signature)], "saved_model")


def _choose(keys: list[str], what: str, asked: str) -> str:
    known = [key for key in keys if not key.startswith("__")]
    if asked:
        if asked in keys:
            return asked
        raise ConfigError(
            f"{what} has no signature {asked!r}{did_you_mean(asked, known)} "
            f"(it has {', '.join(known) or 'none'})",
            path="model.signature",
        )
    if SERVING in known:
        return SERVING
    if len(known) == 1:
        return known[0]
    if not known:
        raise UnsupportedModel(
            f"{what}: it has no signature to call; save it with "
            "tf.saved_model.save(model, dir, signatures=...)"
        )
    raise UnsupportedModel(
        f"{what}: it has the signatures {', '.join(known)} and none is {SERVING!r}: choose one "
        "with `model: {signature: ...}` in the yaml, or signature=... in Python"
    )
