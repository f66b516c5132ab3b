"""Writing a model so that reading it back gives the same outputs, bit for bit."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort

from lpot.backends.onnx.abilities import worst_error
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.model import EMBED_LIMIT, OnnxModel
from lpot.backends.onnx.run import PROVIDERS, run_session
from lpot.core.card import compare_card, read_card, recipe_of, write_card
from lpot.core.errors import WorkspaceError
from lpot.core.overflow import overflow_of

if TYPE_CHECKING:
    from lpot.backends.onnx import OnnxBackend

logger = logging.getLogger(__name__)


def save(model: OnnxModel, path: Path) -> Path:
    """One file, or a file and its data over 2 GB; the card beside it."""
    if path.is_dir():
        path = path / model.backend.best_name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".lpot-", dir=path.parent) as folder:
            draft = write(model.graph, Path(folder) / path.name)
            _verify(model, draft)
            for piece in sorted(Path(folder).iterdir(), reverse=True):  # the data before the model
                piece.replace(path.parent / piece.name)
        write_card(model, path)  # its folder is synced here, for both
    except OSError as error:
        raise WorkspaceError(
            f"{path}: can't write the model ({error.strerror or error})"
        ) from error
    return path


def write(graph: Graph, path: Path) -> Path:
    if graph.nbytes < EMBED_LIMIT:
        path.write_bytes(graph.embedded().SerializeToString(deterministic=True))
        _sync(path)
        return path
    skeleton, aside = graph.skeleton()
    data = path.with_name(f"{path.name}.data")
    with data.open("wb") as stream:
        for tensor in skeleton.graph.initializer:
            if tensor.name not in aside:
                continue
            array = np.ascontiguousarray(aside[tensor.name])
            stream.write(b"\0" * (-stream.tell() % 4096))  # page-aligned, so that it can be mapped
            entry = {"location": data.name, "offset": stream.tell(), "length": array.nbytes}
            del tensor.external_data[:]
            for key, value in entry.items():
                tensor.external_data.add(key=key, value=str(value))
            stream.write(memoryview(array).cast("B"))
        stream.flush()
        os.fsync(stream.fileno())
    onnx.save(skeleton, os.fspath(path))
    _sync(path)
    return path


def _sync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _verify(model: OnnxModel, draft: Path) -> None:
    """Load what was written and compare outputs, while the original is still in memory."""
    if model.probe is None:
        return
    expected = run_session(model.session, model.inputs, model.probe)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    threads = int(os.environ.get("LPOT_THREADS", "0"))
    if threads:
        options.intra_op_num_threads = threads
    again = ort.InferenceSession(os.fspath(draft), options, providers=PROVIDERS)
    for name, one, other in zip(
        model.output_names, expected, run_session(again, model.inputs, model.probe), strict=True
    ):
        if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            raise WorkspaceError(
                f"{draft.name}: the saved model gives another {name!r} than the one in memory; "
                "it was not kept. Please report this with the model"
            )


def restore(backend: OnnxBackend, path: Path) -> OnnxModel:
    graph, source = load_graph(path)
    card = read_card(path)
    compare_card(card, path, backend.versions())
    model = OnnxModel(backend, graph, recipe=recipe_of(card, path), source=source)
    model.met = card.get("met")
    if trouble := overflow_of(model.recipe, worst_error):
        logger.warning("%s: %s", path, trouble)
    return model
