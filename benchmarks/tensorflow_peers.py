"""Contestants on TensorFlow graphs: plain sessions, our INT8 graph, our ONNX export, the peer's."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from models import CACHE
from tensorflow_nets import TfNet, frozen

from lpot.core.batch import InputSpec
from lpot.core.errors import BackendUnavailable
from lpot.core.space import restrict

logger = logging.getLogger(__name__)

PEER = "LPOT_INC_TF_PYTHON"  # an interpreter that has neural-compressor-tf
PROGRAM = Path(__file__).with_name("tensorflow_inc.py")
SAMPLES = 10


def session(
    path: str, first: str, last: str, dtype: str
) -> tuple[Callable[[Mapping[str, Any]], object], list[InputSpec]]:
    """A contestant: the graph in a plain session, oneDNN on, through the same few lines."""
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
    import tensorflow as tf

    v1 = tf.compat.v1
    threads = int(os.environ["LPOT_THREADS"])
    graph = tf.Graph()
    with graph.as_default():
        graph_def = v1.GraphDef.FromString(Path(path).read_bytes())
        tf.graph_util.import_graph_def(graph_def, name="")
    config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1)
    made = v1.Session(graph=graph, config=config)
    shape = tuple(graph.get_tensor_by_name(first).shape.as_list())
    spec = InputSpec("x", dtype, tuple(size or f"d{at}" for at, size in enumerate(shape)))
    run = made.make_callable(last, [first])
    return (lambda feed: run(feed["x"])), [spec]


def onnx_session(
    path: str, dtype: str
) -> tuple[Callable[[Mapping[str, Any]], object], list[InputSpec]]:
    """A contestant: the ONNX file in ONNX Runtime, fed by the same name."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ["LPOT_THREADS"])
    options.log_severity_level = 3
    made = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (node,) = made.get_inputs()
    shape = tuple(size if isinstance(size, int) else f"d{at}" for at, size in enumerate(node.shape))
    return (lambda feed: made.run(None, {node.name: feed["x"]})), [InputSpec("x", dtype, shape)]


def made_by_us(net: TfNet) -> dict[str, Any]:
    """Our INT8 graph and its ONNX twin; never cached: the code may have changed."""
    from lpot.backends import get_backend

    backend: Any = get_backend("tensorflow")
    model = backend.load(frozen(net))
    recipe = restrict(backend.inspect(model), ()).default()
    batches = [(batch,) for batch in net.batches(SAMPLES, 1)]
    built = backend.build(model, recipe, backend.observe(model, batches, (0,))[0])
    return {
        "first": model.input_tensor_names[0],
        "last": model.output_tensor_names[0],
        "ours": backend.save(built, CACHE / f"{net.name}.ours.pb"),
        "onnx": _exported(built, CACHE / f"{net.name}.ours.onnx"),
    }


def _exported(built: Any, path: Path) -> Path | None:
    """None where the packages for it are not at hand."""
    try:
        return Path(built.export_onnx(path))
    except BackendUnavailable as error:
        logger.info("%s", error)
        return None


def made_by_peer(net: TfNet, first: str, last: str) -> Path | None:
    """The peer's INT8 graph, made once; None where the peer is not at hand or fails."""
    python = os.environ.get(PEER)
    target = CACHE / f"{net.name}.inc.pb"
    if target.exists():
        return target
    if not python:
        logger.info("%s is not set: no neural-compressor-tf beside us", PEER)
        return None
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "batches.npz"
        np.savez(data, *net.batches(SAMPLES, 1))
        words = [str(PROGRAM), str(frozen(net)), str(target), str(data), first, last]
        done = subprocess.run([python, *words], capture_output=True, text=True)
    if done.returncode:
        logger.warning("neural-compressor-tf failed on %s: %s", net.name, done.stderr[-300:])
        return None
    return target
