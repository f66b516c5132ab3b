"""Sessions of ONNX Runtime."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from lpot.backends.onnx.child import check_opens
from lpot.backends.onnx.graph import Graph
from lpot.core.batch import Inputs, InputSpec
from lpot.core.errors import DataError, UnsupportedModel, first_line
from lpot.core.inputs import by_name

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
# A damaged name breaks the message about it, too; a graph that a fusion has broken raises its own.
REFUSALS: tuple[type[Exception], ...] = (*ORT_ERRORS, UnicodeDecodeError, RuntimeError)


def session(
    graph: Graph,
    level: ort.GraphOptimizationLevel = ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    profile_to: str = "",
    takes_turns: bool = False,
    packs: bool = True,
) -> ort.InferenceSession:
    """A session on a graph; the big tensors are shared with it, not copied through a proto.

    `profile_to` is the beginning of the file's name that the runtime writes its ops' times to.
    One that `takes_turns` leaves the cores to other sessions once a run is over: its threads would
    look for work for some 50 ms otherwise, and take a core from whatever is timed next. One that
    does not pack has no second copy of the weights: enough for a run or two.
    """
    check_opens(graph, int(level))
    skeleton, aside = graph.skeleton()
    options = _options()
    options.graph_optimization_level = level
    if takes_turns:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if not packs:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if profile_to:
        options.enable_profiling = True
        options.profile_file_prefix = profile_to
    if aside:
        values = [ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for a in aside.values()]
        options.add_external_initializers(list(aside), values)
    made = _opened(skeleton.SerializeToString(), options)
    release_pages(aside.values())
    return made


def file_session(path: str) -> ort.InferenceSession:
    """The runtime maps a file's weights by itself, and lets go of each when it is packed."""
    return _opened(path, _options())


def _options() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    threads = int(os.environ.get("LPOT_THREADS", "0"))
    if threads:
        options.intra_op_num_threads = threads
    inter = int(os.environ.get("LPOT_INTER_THREADS", "1"))
    if inter > 1:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = inter
    return options


def _opened(model: bytes | str, options: ort.SessionOptions) -> ort.InferenceSession:
    try:
        return ort.InferenceSession(model, options, providers=PROVIDERS)
    except REFUSALS as error:
        raise UnsupportedModel(f"ONNX Runtime rejects the model: {first_line(error)}") from error


def release_pages(arrays: Iterable[np.ndarray]) -> None:
    """Weights that are mapped files leave the memory; read again, they come from the system's
    cache of files."""
    for array in arrays:
        if isinstance(array.base, mmap.mmap) and hasattr(array.base, "madvise"):
            array.base.madvise(mmap.MADV_DONTNEED)


def run_session(
    running: ort.InferenceSession, specs: tuple[InputSpec, ...], inputs: Inputs
) -> list[Any]:
    feeds = by_name(specs, inputs)
    try:
        return list(running.run(None, feeds))
    except ORT_ERRORS as error:
        shapes = {name: value.shape for name, value in feeds.items()}
        raise DataError(
            f"ONNX Runtime failed on a batch of {shapes}: {first_line(error)}"
        ) from error


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
