"""Sessions of ONNX Runtime, and feeds checked before the runtime sees them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from lpot.backends.onnx.graph import Graph
from lpot.core.batch import Inputs, InputSpec, as_array
from lpot.core.errors import DataError, UnsupportedModel

PROVIDERS = ["CPUExecutionProvider"]
# The runtime's errors share no base class of their own.
ORT_ERRORS: tuple[type[Exception], ...] = (
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.InvalidProtobuf,
    state.NoModel,
    state.NoSuchFile,
    state.NotImplemented,
    state.RuntimeException,
    state.EPFail,
)
# A damaged name breaks the message about it, too.
REFUSALS: tuple[type[Exception], ...] = (*ORT_ERRORS, UnicodeDecodeError)


def session(
    graph: Graph,
    level: ort.GraphOptimizationLevel = ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    profile_to: str = "",
) -> ort.InferenceSession:
    """A session on a graph; the big tensors are shared with it, not copied through a proto.

    `profile_to` is the beginning of the file's name that the runtime writes its ops' times to.
    """
    skeleton, aside = graph.skeleton()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = level
    if profile_to:
        options.enable_profiling = True
        options.profile_file_prefix = profile_to
    threads = int(os.environ.get("LPOT_THREADS", "0"))
    if threads:
        options.intra_op_num_threads = threads
    inter = int(os.environ.get("LPOT_INTER_THREADS", "1"))
    if inter > 1:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = inter
    if aside:
        values = [ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for a in aside.values()]
        options.add_external_initializers(list(aside), values)
    try:
        return ort.InferenceSession(skeleton.SerializeToString(), options, providers=PROVIDERS)
    except REFUSALS as error:
        raise UnsupportedModel(f"ONNX Runtime refuses the model: {first_line(error)}") from error


def run_session(
    running: ort.InferenceSession, specs: tuple[InputSpec, ...], inputs: Inputs
) -> list[Any]:
    feeds = feed(specs, inputs)
    try:
        return list(running.run(None, feeds))
    except ORT_ERRORS as error:
        shapes = {name: value.shape for name, value in feeds.items()}
        raise DataError(
            f"ONNX Runtime failed on a batch of {shapes}: {first_line(error)}"
        ) from error


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def input_specs(graph: Graph) -> tuple[InputSpec, ...]:
    specs = []
    for name in graph.inputs:
        kind = graph.types.get(name, TensorProto.FLOAT)
        try:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name
        except KeyError:
            dtype = "object"
        specs.append(InputSpec(name, dtype, graph.shapes.get(name)))
    return tuple(specs)


def feed(specs: tuple[InputSpec, ...], inputs: Inputs) -> dict[str, np.ndarray]:
    """Inputs by name, each of the right type and shape, or an error that says which is not."""
    if isinstance(inputs, Mapping):
        given = dict(inputs)
    else:
        if len(inputs) != len(specs):
            raise DataError(
                f"the model has {len(specs)} input(s) ({', '.join(s.name for s in specs)}), "
                f"but {len(inputs)} were given"
            )
        given = {spec.name: value for spec, value in zip(specs, inputs, strict=True)}
    return {spec.name: _checked(spec, given) for spec in specs}


def _checked(spec: InputSpec, given: Mapping[str, Any]) -> np.ndarray:
    if spec.name not in given:
        raise DataError(f"input {spec.name!r} is missing; given were {sorted(map(str, given))}")
    value = given[spec.name]
    try:
        array = as_array(value)
    except ValueError as error:
        raise DataError(f"input {spec.name!r} is not one array: {error}") from error
    array = _cast(spec, array, listed=isinstance(value, list | tuple | int | float))
    if spec.shape is not None:
        fits = array.ndim == len(spec.shape) and all(
            not isinstance(want, int) or want == got
            for want, got in zip(spec.shape, array.shape, strict=True)
        )
        if not fits:
            missing = array.ndim == len(spec.shape) - 1
            raise DataError(
                f"input {spec.name!r} expects shape {_shape(spec.shape)}, got {list(array.shape)}"
                + (": is the batch dimension missing?" if missing else "")
            )
    return np.asarray(array, order="C")  # ascontiguousarray makes a vector of a scalar


def _cast(spec: InputSpec, array: np.ndarray, listed: bool) -> np.ndarray:
    if array.dtype.name == spec.dtype:
        return array
    if spec.dtype == "object":
        return array.astype(object)
    want = np.dtype(spec.dtype)
    # Same kind only: pixels in uint8 given to a float model are most likely not normalised.
    same_kind = array.dtype.kind == want.kind or {array.dtype.kind, want.kind} <= set("iu")
    if listed or same_kind:
        return array.astype(want)
    raise DataError(
        f"input {spec.name!r} expects {spec.dtype}, got {array.dtype.name}: "
        f"convert it in the loader (.astype('{spec.dtype}'), with the model's own scaling)"
    )


def _shape(shape: tuple[int | str | None, ...]) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
