"""Writing a model in the form it came in, so that reading it back gives the same outputs."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.reading.load import KERAS_FILES, load
from lpot.backends.tensorflow.run import run
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import full_name, node_name
from lpot.core.backend import ModelSpec
from lpot.core.errors import SaveError, WorkspaceError
from lpot.core.files.card import compare_card, read_card, recipe_of
from lpot.core.files.draft import write_bytes
from lpot.core.files.publish import drafting, publish

if TYPE_CHECKING:
    from lpot.backends.tensorflow import TensorflowBackend

logger = logging.getLogger(__name__)

FOLDER_FORMS = ("saved_model", "keras")
SAVED_MODEL = "saved_model.pb"


def save(model: TensorflowModel, path: Path) -> Path:
    """A SavedModel directory for what came as SavedModel or Keras, a frozen .pb for the rest.

    A path that ends in .pb is always a frozen graph.
    """
    if path.suffix.lower() in KERAS_FILES:
        logger.warning(
            "%s: a Keras file can't hold INT8 ops; a SavedModel is written to %s, which Keras "
            "loads as keras.layers.TFSMLayer",
            path,
            path.with_suffix(""),
        )
        path = path.with_suffix("")
    folder = path.suffix != ".pb" and model.form in FOLDER_FORMS
    if not folder:
        if path.is_dir():
            path = path / model.backend.best_name
        elif path.suffix != ".pb":
            path = path.with_name(f"{path.name}.pb")
    elif path.exists() and not path.is_dir():
        raise WorkspaceError(f"{path}: a file exists where the SavedModel directory should be")
    ends = {"inputs": list(model.input_names), "outputs": list(model.output_names)}
    model.card = {**model.card, "ends": ends}
    if model.source:
        model.card["source"] = str(Path(model.source).resolve())
    try:
        with drafting(path, folder) as holder:
            draft = holder / ("model" if folder else path.name)
            if folder:
                _write_saved_model(model, draft)
            else:
                _write_graph_def(model.net, draft)
            _verify(model, draft)
            # The weights of a frozen graph lie in it: saved_model.pb is the whole model.
            publish(model, draft if folder else holder, path, SAVED_MODEL if folder else "")
    except OSError as error:
        raise WorkspaceError(
            f"{path}: can't write the model ({error.strerror or error})"
        ) from error
    return path


def write_graph(out_graph_def: GraphDef | tf.Graph, out_graph_file: str | os.PathLike[str]) -> None:
    """A frozen graph as a binary file: whole or not at all. A folder that is missing is made."""
    graph_def = out_graph_def
    if not isinstance(graph_def, GraphDef):
        graph_def = graph_def.as_graph_def()
    target = Path(out_graph_file)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, graph_def.SerializeToString(deterministic=True))


def _write_graph_def(net: Net, path: Path) -> None:
    """Node by node, as protobuf writes repeated fields: a big graph is not copied twice."""
    with path.open("wb") as file:
        for node in net.nodes.values():
            file.write(GraphDef(node=[node]).SerializeToString(deterministic=True))
        file.write(net.header.SerializeToString(deterministic=True))


def _verify(model: TensorflowModel, draft: Path) -> None:
    """Load what was written and compare outputs, while the original is still in memory.

    A graph that draws random numbers differs from itself: of it nothing can be said.
    """
    if model.probe is None:
        return
    spec = ModelSpec(inputs=model.input_names, outputs=model.output_names)
    again = TensorflowModel(model.backend, load(draft, spec).net)
    expected = run(model, model.probe)
    model.close()  # two sessions at once would hold the weights twice as often
    found = run(again, model.probe)
    again.close()
    for name, one, other in zip(model.output_names, expected, found, strict=True):
        if not _same(one, other) and all(map(_same, expected, run(model, model.probe))):
            raise SaveError(
                f"the saved model gives a different {name!r} from the one in memory; it was not "
                "kept. Please report this with the model"
            )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")


def _write_saved_model(model: TensorflowModel, path: Path) -> None:
    keys = model.signature or {
        "inputs": {node_name(name): name for name in model.input_names},
        "outputs": {node_name(name): name for name in model.output_names},
    }
    with v1.Session(graph=model.native) as session:
        infos = [
            {
                key: v1.saved_model.build_tensor_info(
                    model.native.get_tensor_by_name(full_name(name))
                )
                for key, name in keys[side].items()
            }
            for side in ("inputs", "outputs")
        ]
        signature = v1.saved_model.build_signature_def(
            *infos, v1.saved_model.signature_constants.PREDICT_METHOD_NAME
        )
        try:
            builder = v1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(
                session, [v1.saved_model.tag_constants.SERVING], {"serving_default": signature}
            )
            builder.save()
        except tf.errors.OpError as error:  # a full disk comes as one of TensorFlow's own errors
            raise WorkspaceError(f"{path}: can't be written ({error.message})") from error


def restore(backend: TensorflowBackend, path: Path) -> TensorflowModel:
    if not path.exists() and path.with_name(f"{path.name}.pb").exists():
        path = path.with_name(f"{path.name}.pb")
    card = read_card(path)
    compare_card(card, path, backend.versions())
    ends = card.get("ends") or {}
    spec = ModelSpec(inputs=tuple(ends.get("inputs", ())), outputs=tuple(ends.get("outputs", ())))
    loaded = load(path, spec)
    model = TensorflowModel(
        backend,
        loaded.net,
        loaded.form,
        loaded.source,
        recipe=recipe_of(card, path),
        signature=loaded.signature,
    )
    model.met = card.get("met")
    return model
