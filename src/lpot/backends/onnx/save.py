"""Writing a model so that reading it back gives the same outputs, bit for bit."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import Graph, attribute
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.model import EMBED_LIMIT, OnnxModel
from lpot.backends.onnx.recurrent import DOMAIN
from lpot.backends.onnx.run import run_session
from lpot.core.cpu import overflow_of
from lpot.core.errors import SaveError, WorkspaceError
from lpot.core.files.card import compare_card, read_card, recipe_of
from lpot.core.files.publish import drafting, publish
from lpot.core.ptq.distance import arrays

if TYPE_CHECKING:
    from lpot.backends.onnx import OnnxBackend

logger = logging.getLogger(__name__)


def save(model: OnnxModel, path: Path) -> Path:
    """One file, or a file and its data over 2 GB; the card beside it."""
    if path.is_dir():
        path = path / model.backend.best_name
    try:
        with drafting(path) as folder:
            draft = write(model.graph, folder / path.name, path.parent)
            _verify(model, draft)
            data = [piece.name for piece in folder.iterdir() if piece.name != draft.name]
            publish(model, folder, path, first=data)
    except OSError as error:
        raise WorkspaceError(
            f"{path}: can't write the model ({error.strerror or error})"
        ) from error
    return path


def plain(graph: Graph) -> Graph:
    """With a SiLU in ONNX's own two ops, as other runtimes know it."""
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type != "QuickGelu" or node.domain != DOMAIN or attribute(node, "alpha") != 1.0:
            nodes.append(node)
            continue
        (source,), (output,) = node.input, node.output
        inner = graph.fresh(f"{output}/sigmoid")
        nodes.append(helper.make_node("Sigmoid", [source], [inner], name=inner))
        nodes.append(helper.make_node("Mul", [source, inner], [output], name=node.name))
    return graph if len(nodes) == len(graph.nodes) else graph.replaced(nodes, graph.weights)


def write(graph: Graph, path: Path, home: Path | None = None, limit: int | None = None) -> Path:
    """The model at `path`, which will be moved to the folder `home` with its data, if any.

    Weights of `limit` bytes or more lie in a file of their own, which can be mapped into memory;
    without a limit, those that a protobuf can't hold.
    """
    if graph.nbytes < (EMBED_LIMIT if limit is None else limit):
        path.write_bytes(graph.embedded().SerializeToString(deterministic=True))
        return path
    skeleton, aside = graph.skeleton()
    data = path.with_name(f"{path.name}.data")
    digest = hashlib.sha256()
    entries = []
    with data.open("wb") as stream:
        for tensor in skeleton.graph.initializer:
            if tensor.name not in aside:
                continue
            array = np.ascontiguousarray(aside[tensor.name])
            stream.write(b"\0" * (-stream.tell() % 4096))  # page-aligned, so that it can be mapped
            entries.append((tensor, stream.tell(), array.nbytes))
            raw = array.reshape(-1).view(np.uint8).data
            stream.write(raw)
            digest.update(raw)
    if home is not None and (home / data.name).exists():
        # The model that lies there now may need the data of that name until it is replaced.
        data = data.replace(path.with_name(f"{path.name}.{digest.hexdigest()[:12]}.data"))
    for tensor, offset, length in entries:
        del tensor.external_data[:]
        for key, value in (("location", data.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
    onnx.save(skeleton, os.fspath(path))
    return path


def _verify(model: OnnxModel, draft: Path) -> None:
    """Load what was written and compare outputs, while the original is still in memory."""
    if model.probe is None:
        return
    expected = run_session(model.session, model.inputs, model.probe)
    again = model.backend.open_file(draft, model.recipe)
    for name, one, other in zip(
        model.output_names, expected, run_session(again, model.inputs, model.probe), strict=True
    ):
        if not _same(one, other) and _repeats(model, expected):
            raise SaveError(
                f"{draft.name}: the saved model gives a different {name!r} from the one in "
                "memory; it was not kept. Please report this with the model"
            )


def _repeats(model: OnnxModel, before: list[Any]) -> bool:
    """Does it give the same twice? Models that draw random numbers do not."""
    again = run_session(model.session, model.inputs, model.probe or {})
    return all(map(_same, before, again))


def _same(one: object, other: object) -> bool:
    """Equal to the last bit, sequences and maps included."""
    left, right = list(arrays(one)), list(arrays(other))
    return len(left) == len(right) and all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in zip(left, right, strict=True)
    )


def restore(backend: OnnxBackend, path: Path) -> OnnxModel:
    graph, source = load_graph(path)
    card = read_card(path)
    compare_card(card, path, backend.versions())
    model = OnnxModel(backend, graph, recipe=recipe_of(card, path), source=source)
    model.met = card.get("met")
    if trouble := overflow_of(model.recipe, backend.worst_error):
        logger.warning("%s: %s", path, trouble)
    return model
