"""Functions on models that scripts of the original call by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpot.backends.tensorflow.reading.freeze import is_ckpt_format, is_saved_model_format
from lpot.backends.tensorflow.runtime import GraphDef, tf
from lpot.core.errors import UnsupportedModel

BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
STATISTICS = {3: "moving_mean", 4: "moving_variance"}


def get_model_type(model: Any) -> str:
    """The original's word for the form a TensorFlow model comes in."""
    if isinstance(model, tf.Graph):
        return "graph"
    if isinstance(model, GraphDef):
        return "graph_def"
    if isinstance(model, tf.keras.Model):
        return "keras"
    path = Path(str(model))
    if path.is_dir():
        if is_saved_model_format(path):
            keras = (path / "keras_metadata.pb").is_file()
            return "keras_saved_model" if keras else "saved_model"
        if is_ckpt_format(path):
            return "checkpoint"
    if path.is_file() or path.with_name(f"{path.name}.pb").is_file():
        return "frozen_pb"
    raise UnsupportedModel(
        f"{model!r} is not a TensorFlow model: expected a tf.Graph, a GraphDef, a Keras model, or "
        "the path of a frozen .pb, a SavedModel or a checkpoint directory"
    )


def get_estimator_graph(estimator: Any, input_fn: Any) -> Any:
    raise UnsupportedModel(
        "tf.estimator was removed from TensorFlow in 2.16: export the estimator as a SavedModel "
        "(export_saved_model) where it still runs, and give that directory"
    )


def use_moving_statistics(graph_def: GraphDef) -> GraphDef:
    """Batch norms frozen with constants in place of their moving statistics read those again."""
    names = {node.name: node for node in graph_def.node}
    for node in graph_def.node:
        if node.op not in BATCH_NORMS:
            continue
        for index, statistic in STATISTICS.items():
            given = names.get(node.input[index])
            moving = f"{node.input[index].rpartition('/')[0]}/{statistic}"
            if given is not None and given.op == "Const" and moving in names:
                node.input[index] = moving
    return graph_def
