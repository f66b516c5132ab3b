"""Sessions, and feeds checked before TensorFlow sees them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf, v1
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import full_name
from lpot.core.batch import Inputs, InputSpec
from lpot.core.errors import DataError, UnsupportedModel
from lpot.core.inputs import by_name

if TYPE_CHECKING:
    from lpot.backends.tensorflow.model import TensorflowModel

HEAVY = 1 << 24  # bytes of a graph that runs with an eye on memory
ALONE = 1 << 18  # bytes of a constant that is imported by itself


def import_graph(graph_def: GraphDef) -> tf.Graph:
    graph = tf.Graph()
    _import(graph, graph_def)
    return graph


def fill(graph: tf.Graph, net: Net) -> None:
    """Big constants get their values one by one: importing holds four copies of what it imports.

    They are there by name from the start: TensorFlow renames an op when a constant that stands
    under its name (`conv/weight`) was imported before it.
    """
    alone = [n for n in net.nodes.values() if n.op == "Const" and n.ByteSize() > ALONE]
    names = {node.name for node in alone}
    light = GraphDef()
    light.CopyFrom(net.header)
    light.node.extend(_valueless(n) if n.name in names else n for n in net.nodes.values())
    _import(graph, light)
    for node in alone:
        # The one way to give a constant its value later; there is no public one.
        graph.get_operation_by_name(node.name)._set_attr("value", node.attr["value"])


def _valueless(node: NodeDef) -> NodeDef:
    """A constant of the same type and shape, all zeros, which take no room."""
    fresh = NodeDef(name=node.name, op=node.op, input=node.input, device=node.device)
    tensor = node.attr["value"].tensor
    for name in node.attr:
        if name != "value":
            fresh.attr[name].CopyFrom(node.attr[name])
    fresh.attr["value"].tensor.dtype = tensor.dtype
    fresh.attr["value"].tensor.tensor_shape.CopyFrom(tensor.tensor_shape)
    return fresh


def _import(graph: tf.Graph, graph_def: GraphDef) -> None:
    with graph.as_default():
        try:
            tf.graph_util.import_graph_def(graph_def, name="")
        except (ValueError, tf.errors.OpError) as error:
            raise UnsupportedModel(f"TensorFlow rejects the graph: {first_line(error)}") from error


def session_config(quick: bool = False, size: int = 0) -> v1.ConfigProto:
    """`quick` leaves out the optimisation of the graph, which costs more than a few runs save.

    TensorFlow copies the weights many times over while it optimises a graph of `size` bytes.
    """
    threads = int(os.environ.get("LPOT_THREADS", "0"))
    inter = int(os.environ.get("LPOT_INTER_THREADS", min(threads, 1)))
    config = v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=inter
    )
    # TensorFlow keeps INT8 kernels for each thread: these threads end with their session.
    config.use_per_session_threads = True
    options = config.graph_options
    rewrites = options.rewrite_options
    if quick:
        rewrites.disable_meta_optimizer = True
        # The nodes asked for, and no copy of the whole graph beside them.
        options.place_pruned_graph = True
        options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    elif size > HEAVY:
        # They change nothing in a net without loops on a CPU, and hold three copies.
        rewrites.layout_optimizer = rewrites.shape_optimization = rewrites.OFF
        rewrites.loop_optimization = rewrites.OFF
        rewrites.memory_optimization = rewrites.NO_MEM_OPT
    return config


def open_session(graph_def: GraphDef) -> v1.Session:
    return v1.Session(graph=import_graph(graph_def), config=session_config())


def first_line(error: Exception) -> str:
    """What went wrong, without the places in Python and C++ where it was noticed."""
    skipped = ("Graph execution error", "Detected at node", "Node:", 'File "', " ", "\t")
    lines = [line for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if not line.startswith(skipped)), "")
    return told.strip() or type(error).__name__


def run(model: TensorflowModel, inputs: Inputs, steps: int = 1) -> list[np.ndarray]:
    """Outputs in order. A graph that reads its data itself is started and run for so many steps;
    with -1 until its data end.
    """
    return run_in(model.engine, model, inputs, steps)


def run_in(
    session: Any, model: TensorflowModel, inputs: Inputs, steps: int = 1
) -> list[np.ndarray]:
    """The same in a session that is not the model's own."""
    feeds = feed(model.inputs, inputs)
    fetches = [full_name(name) for name in model.output_names]
    try:
        if model.iterator is None:
            return list(session.run(fetches, feeds))
        session.run(model.iterator, feeds)
        return list(run_to_end(session, fetches, steps))
    except tf.errors.OpError as error:
        shapes = {name: np.shape(value) for name, value in feeds.items()}
        raise DataError(f"TensorFlow failed on a batch of {shapes}: {first_line(error)}") from error


def iterator_sess_run(
    sess: v1.Session,
    iter_op: Any,
    feed_dict: Mapping[Any, Any],
    output_tensor: Any,
    iteration: int = -1,
    measurer: Any = None,
) -> Any:
    """Start an in-graph iterator and run it to the end of its data, or for so many steps.

    `measurer` is told of each step by `start()` and `end()`.
    """
    sess.run(iter_op, feed_dict)
    return run_to_end(sess, output_tensor, iteration, measurer)


def run_to_end(session: v1.Session, fetches: Any, steps: int = -1, measurer: Any = None) -> Any:
    """What the steps of an in-graph iterator gave, joined along the first axis."""
    gathered: list[Any] = []
    while steps < 0 or len(gathered) < steps:
        if measurer is not None:
            measurer.start()
        try:
            gathered.append(session.run(fetches))
        except tf.errors.OutOfRangeError:
            break
        if measurer is not None:
            measurer.end()
    if not gathered:
        return []
    if isinstance(gathered[0], Mapping):
        return {key: _join([item[key] for item in gathered]) for key in gathered[0]}
    if isinstance(gathered[0], list | tuple):
        return [_join(pieces) for pieces in zip(*gathered, strict=True)]
    return _join(gathered)


def _join(pieces: Sequence[Any]) -> np.ndarray:
    arrays = [np.asarray(piece) for piece in pieces]
    return np.concatenate(arrays) if arrays[0].ndim else np.stack(arrays)


def feed(specs: Sequence[InputSpec], inputs: Inputs) -> dict[str, Any]:
    """Tensor name → array of the right type and shape, or an error that says what is not."""
    if not isinstance(inputs, Mapping):
        inputs = _components(inputs)
    if isinstance(inputs, Mapping):
        inputs = {_plain(key): value for key, value in inputs.items()}
    plain = [replace(spec, name=_plain(spec.name)) for spec in specs]
    fed = by_name(plain, inputs)
    return {full_name(spec.name): fed[name.name] for spec, name in zip(specs, plain, strict=True)}


def _components(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A ragged or sparse tensor as the plain ones that a graph takes in its place."""
    if not any(isinstance(value, tf.RaggedTensor | tf.SparseTensor) for value in inputs):
        return inputs
    return tuple(tf.nest.flatten(list(inputs), expand_composites=True))


def _plain(name: Any) -> str:
    text = str(getattr(name, "name", name))
    return text[:-2] if text.endswith(":0") else text
