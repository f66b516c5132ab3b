"""Reading ONNX safely: nothing in a file is trusted until it was checked."""

from __future__ import annotations

import logging
import os
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import (
    ModelProto,
    SparseTensorProto,
    TensorProto,
    helper,
    inliner,
    numpy_helper,
    version_converter,
)

from lpot.backends.onnx.external import OPAQUE, embed, external_file, fetch
from lpot.backends.onnx.graph import Graph, reads
from lpot.core.errors import UnsupportedModel, first_line

logger = logging.getLogger(__name__)

OLDEST = 7  # the first opset that ONNX Runtime runs; older models are converted
CONVERTED = 13
# What numpy and onnx raise over a tensor that is not what it says.
_DAMAGE = (ValueError, TypeError, KeyError, OverflowError)
# What stands behind the first four bytes of a file of ONNX Runtime's own format.
_ORT_FORMAT = b"ORTM"
# Compiled for one runtime, or for one machine: what they were made from is what can be tuned.
_CONVERTED = {
    ".xml": "an OpenVINO IR",
    ".engine": "a TensorRT engine",
    ".trt": "a TensorRT engine",
}
_FOREIGN = (
    (
        b"PK\x03\x04",
        "a zip archive: a PyTorch, Keras or numpy file? Export the model to ONNX first",
    ),
    (b"\x89HDF", "an HDF5 file: a Keras model? Use framework: tensorflow"),
    (b"\x80\x02", "a Python pickle, which is never opened here"),
    (b"\x80\x03", "a Python pickle, which is never opened here"),
    (b"\x80\x04", "a Python pickle, which is never opened here"),
    (b"version https://git-lfs", "a Git LFS pointer: fetch the real file with `git lfs pull`"),
)


def load_graph(source: Any) -> tuple[Graph, str]:
    """A path or ModelProto as a Graph with named nodes, and where it came from."""
    if isinstance(source, ModelProto):
        proto = ModelProto()
        proto.CopyFrom(source)  # the caller's object is never touched
        return _to_graph(proto, None, "the ModelProto given"), ""
    if not isinstance(source, str | os.PathLike):
        raise UnsupportedModel(
            f"the ONNX backend was given a {type(source).__module__}.{type(source).__qualname__}: "
            "it takes a path to a .onnx file or an onnx.ModelProto"
        )
    path = Path(source)
    return _to_graph(_read(path), path.parent, str(path)), str(path)


def _read(path: Path) -> ModelProto:
    if not path.exists():
        near = (
            sorted(item.name for item in path.parent.glob("*.onnx"))[:5]
            if path.parent.is_dir()
            else []
        )
        hint = f"; its folder has {', '.join(near)}" if near else ""
        raise UnsupportedModel(f"{path}: no such file{hint}")
    if not path.is_file():
        raise UnsupportedModel(f"{path}: not a regular file; give the .onnx file itself")
    if path.suffix.lower() in _CONVERTED:
        raise UnsupportedModel(
            f"{path}: {_CONVERTED[path.suffix.lower()]}, which one runtime alone reads: give the "
            ".onnx file, or the PyTorch or TensorFlow model, that it was made from"
        )
    if path.stat().st_size == 0:
        raise UnsupportedModel(f"{path}: the file is empty (an interrupted download or export?)")
    with path.open("rb") as stream:
        start = stream.read(64)
    for magic, meaning in _FOREIGN:
        if start.startswith(magic):
            raise UnsupportedModel(f"{path}: not an ONNX model but {meaning}")
    if start[4:8] == _ORT_FORMAT:
        raise UnsupportedModel(
            f"{path}: a file of ONNX Runtime's own format (.ort), which holds no model that can be "
            "changed: give the .onnx file that it was made from"
        )
    try:
        return onnx.load(os.fspath(path), load_external_data=False)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise UnsupportedModel(
            f"{path}: not a readable ONNX model ({first_line(error)}): "
            "truncated, or another format?"
        ) from error


def _to_graph(proto: ModelProto, folder: Path | None, what: str) -> Graph:
    if len(proto.graph.node) == 0:
        raise UnsupportedModel(f"{what}: the graph has no nodes (an empty or foreign file?)")
    if len(proto.graph.output) == 0:
        raise UnsupportedModel(f"{what}: the graph has no outputs, so there is nothing to compute")
    _check_names(proto, what)
    proto = _readable(proto, what)
    _open_dimensions(proto)
    for body in (proto.graph, *proto.functions):
        embed(body.node, folder, what)
    weights: dict[str, np.ndarray] = {}
    opaque: dict[str, TensorProto] = {}
    for tensor in proto.graph.initializer:
        if tensor.data_type in OPAQUE:
            if tensor.data_location == TensorProto.EXTERNAL:
                fetch(tensor, folder, what)
            opaque[tensor.name] = tensor
        else:
            weights[tensor.name] = _array(tensor, folder, what)
    for sparse in proto.graph.sparse_initializer:
        weights[sparse.values.name] = _dense(sparse, what)
    try:
        _lift_constants(proto, weights, opaque)
    except _DAMAGE as error:
        raise UnsupportedModel(f"{what}: a Constant is damaged ({error})") from error
    _name_nodes(proto)
    nodes = _sorted([_trimmed(node) for node in proto.graph.node], what)
    del proto.graph.sparse_initializer[:]
    del proto.graph.node[:]
    del proto.graph.initializer[:]
    del proto.graph.value_info[:]
    _drop_constant_inputs(proto, {*weights, *opaque})
    header = ModelProto()
    header.CopyFrom(proto)  # what was deleted from a message lives as long as the message
    # Weights that nobody reads are dropped: the runtime refuses them when handed over aside.
    bare = Graph(header, nodes, weights, opaque).replaced(nodes, weights)
    types, shapes = infer(bare)
    return Graph(header, nodes, bare.weights, bare.opaque, types, shapes)


def _readable(proto: ModelProto, what: str) -> ModelProto:
    """The same model without functions of its own, in an opset that the runtime knows."""
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    try:
        if proto.functions:
            proto = inliner.inline_local_functions(proto)
        if 0 < opset < OLDEST:
            proto.ir_version = max(proto.ir_version, 4)  # weights need not be inputs, too
            _spread_slopes(proto)
            proto = version_converter.convert_version(proto, CONVERTED)
    except onnx.checker.ValidationError as error:  # one that calls itself, above all
        raise UnsupportedModel(
            f"{what}: its functions can't be written out ({first_line(error)}): export it again"
        ) from error
    except (RuntimeError, ValueError, version_converter.ConvertError) as error:
        if 0 < opset < OLDEST:
            raise UnsupportedModel(
                f"{what}: opset {opset} can't be converted to {CONVERTED} "
                f"({first_line(error)}): export the model again"
            ) from error
        logger.info("the model's functions could not be inlined: %s", first_line(error))
    return proto


def _spread_slopes(proto: ModelProto) -> None:
    """PRelu's slopes lay along the channels before opset 7, and along the last axis since.

    The converter leaves them as they are.
    """
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    known = onnx.shape_inference.infer_shapes(proto).graph
    values = (*known.value_info, *known.input)
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values}
    for node in proto.graph.node:
        slope = tensors.get(node.input[1]) if node.op_type == "PRelu" else None
        if slope is not None and len(slope.dims) == 1 and slope.dims[0] > 1:
            twin = proto.graph.initializer.add()
            twin.CopyFrom(slope)
            twin.name = f"{node.output[0]}/slope"
            twin.dims.extend([1] * (ranks.get(node.input[0], 2) - 2))
            node.input[1] = twin.name


def _open_dimensions(proto: ModelProto) -> None:
    """Some exporters write -1 or 0 for a size that is not known: the runtime takes both so."""
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value <= 0:
                dim.ClearField("dim_value")


def _check_names(proto: ModelProto, what: str) -> None:
    made: set[str] = {tensor.name for tensor in proto.graph.initializer}
    made |= {sparse.values.name for sparse in proto.graph.sparse_initializer}
    made |= {value.name for value in proto.graph.input}
    for node in proto.graph.node:
        for text in (node.name, node.op_type, *node.input, *node.output):
            if not isinstance(text, str):  # protobuf hands over as bytes what is not UTF-8
                raise UnsupportedModel(
                    f"{what}: the name {text!r} is not text; the file is damaged"
                )
        for name in node.output:
            if name and name in made:
                raise UnsupportedModel(
                    f"{what}: tensor {name!r} is produced twice; the file is damaged"
                )
            made.add(name)
    for value in proto.graph.output:
        if value.name not in made:
            raise UnsupportedModel(
                f"{what}: output {value.name!r} is not produced by any node; the file is damaged"
            )


def _array(tensor: TensorProto, folder: Path | None, what: str) -> np.ndarray:
    try:
        if any(size < 0 for size in tensor.dims):
            raise ValueError(f"a shape of {list(tensor.dims)}")
        if tensor.data_location != TensorProto.EXTERNAL:
            return np.asarray(numpy_helper.to_array(tensor))
        data = external_file(tensor, folder, what)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        shape = tuple(tensor.dims)
        if int(np.prod(shape, dtype=np.int64)) == 0:
            return np.zeros(shape, dtype)
        return np.memmap(data[0], dtype.newbyteorder("<"), "r", data[1], shape)
    except _DAMAGE as error:
        raise UnsupportedModel(
            f"{what}: initializer {tensor.name!r} is damaged ({first_line(error)})"
        ) from error


def _dense(sparse: SparseTensorProto, what: str) -> np.ndarray:
    """A sparse initializer written out: the kernels multiply dense weights in any case."""
    name = sparse.values.name
    try:
        if any(size < 0 for size in sparse.dims):
            raise ValueError(f"a shape of {list(sparse.dims)}")
        values, places = map(numpy_helper.to_array, (sparse.values, sparse.indices))
        array = np.zeros(tuple(sparse.dims), values.dtype)
        flat = places.ndim == 1
        array[np.unravel_index(places, array.shape) if flat else tuple(places.T)] = values
    except (*_DAMAGE, IndexError, MemoryError) as error:
        raise UnsupportedModel(
            f"{what}: sparse initializer {name!r} is damaged ({first_line(error)})"
        ) from error
    return array


def _lift_constants(
    proto: ModelProto, weights: dict[str, np.ndarray], opaque: dict[str, TensorProto]
) -> None:
    """Constant nodes with a plain tensor become initializers: one way to look for weights."""
    kept = []
    for node in proto.graph.node:
        value = (
            node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
        )
        if value is None or value.name not in (
            "value",
            "value_float",
            "value_int",
            "value_floats",
            "value_ints",
        ):
            kept.append(node)
            continue
        name = node.output[0]
        if value.name != "value":
            dtype = np.float32 if "float" in value.name else np.int64
            weights[name] = np.array(helper.get_attribute_value(value), dtype)
        elif value.t.data_type in OPAQUE:
            tensor = TensorProto()
            tensor.CopyFrom(value.t)
            tensor.name = name
            opaque[name] = tensor
        else:
            weights[name] = numpy_helper.to_array(value.t)
    if not kept:
        return
    outputs = {value.name for value in proto.graph.output}
    if outputs & (set(weights) | set(opaque)) and len(kept) == 0:
        return
    nodes = [_copy(node) for node in kept]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    twin = onnx.NodeProto()
    twin.CopyFrom(node)
    return twin


def _trimmed(node: onnx.NodeProto) -> onnx.NodeProto:
    """Without empty names behind the last input: to leave out is the same as to name nothing.

    The runtime's fusions of LayerNormalization end the process over an empty bias.
    """
    twin = _copy(node)
    while twin.input and not twin.input[-1]:
        del twin.input[-1]
    return twin


def _drop_constant_inputs(proto: ModelProto, constants: set[str]) -> None:
    """Before IR 4 weights had to be inputs, too: a pass that folds one must leave no gap."""
    true_inputs = [value for value in proto.graph.input if value.name not in constants]
    proto.ir_version = max(proto.ir_version, 4)
    if len(true_inputs) < len(proto.graph.input):
        del proto.graph.input[:]
        proto.graph.input.extend(true_inputs)


def _sorted(nodes: list[onnx.NodeProto], what: str) -> tuple[onnx.NodeProto, ...]:
    """Every node behind those it reads from: the standard asks for it, not every exporter does."""
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    before = {
        index: {maker[name] for name in reads(node) if name in maker}
        for index, node in enumerate(nodes)
    }
    if all(earlier < index for index, found in before.items() for earlier in found):
        return tuple(nodes)
    try:
        return tuple(nodes[index] for index in TopologicalSorter(before).static_order())
    except CycleError as error:
        name = nodes[error.args[1][0]].name
        raise UnsupportedModel(f"{what}: node {name!r} reads its own output") from error


def _name_nodes(proto: ModelProto) -> None:
    """Every node gets a name of its own: duplicates and empty names are legal in ONNX."""
    taken = {node.name for node in proto.graph.node if node.name}
    seen: set[str] = set()
    for index, node in enumerate(proto.graph.node):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        base = node.name or node.op_type
        name = f"{base}_{index}"
        while name in taken or name in seen:
            name += "_"
        node.name = name
        seen.add(name)


def infer(graph: Graph) -> tuple[dict[str, int], dict[str, tuple[int | str | None, ...]]]:
    """Types and shapes where inference can tell; what it can't tell is simply not there."""
    model, _ = graph.skeleton()
    try:
        model = onnx.shape_inference.infer_shapes(model)
    except (RuntimeError, ValueError, onnx.shape_inference.InferenceError) as error:
        logger.info("shape inference failed: %s", first_line(error))
    types: dict[str, int] = {}
    shapes: dict[str, tuple[int | str | None, ...]] = {}
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        if not value.type.HasField("tensor_type"):
            types[value.name] = TensorProto.UNDEFINED
            continue
        tensor = value.type.tensor_type
        types[value.name] = tensor.elem_type
        if tensor.HasField("shape"):
            shapes[value.name] = tuple(
                dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or None)
                for dim in tensor.shape.dim
            )
    for name, array in graph.weights.items():
        types[name] = helper.np_dtype_to_tensor_dtype(array.dtype)
        shapes[name] = array.shape
    return types, shapes
