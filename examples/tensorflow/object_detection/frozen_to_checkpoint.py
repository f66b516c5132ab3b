"""A frozen graph as a checkpoint directory: its weights become variables again.

    python frozen_to_checkpoint.py frozen_inference_graph.pb DIR

What a training run would leave, for models of which only the frozen file is at hand.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # read when TensorFlow is imported

import tensorflow as tf

from lpot.adaptor.tf_utils.util import get_graph_def

v1 = tf.compat.v1
SMALLEST = 16  # values; what is smaller is a setting of the graph, not a weight


def is_weight(node: Any) -> bool:
    if node.op != "Const" or node.input or node.attr["dtype"].type != tf.float32.as_datatype_enum:
        return False
    sizes = [axis.size for axis in node.attr["value"].tensor.tensor_shape.dim]
    return bool(sizes) and int(tf.TensorShape(sizes).num_elements() or 0) >= SMALLEST


def convert(frozen: Path, folder: Path) -> str:
    """The prefix of the checkpoint written."""
    graph_def = get_graph_def(str(frozen))
    weights = {node.name: node for node in graph_def.node if is_weight(node)}
    rest = v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    rest.node.extend(node for node in graph_def.node if node.name not in weights)
    graph = tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        values = {n: tf.make_ndarray(node.attr["value"].tensor) for n, node in weights.items()}
        # Zeros in the graph, the values from outside: they go to the checkpoint alone.
        variables = {
            name: v1.Variable(tf.zeros(value.shape), name=name, use_resource=False)
            for name, value in values.items()
        }
        fill = {one.initializer: values[name] for name, one in variables.items()}
        session.run(list(fill), {op.inputs[1]: value for op, value in fill.items()})
        read = {f"{name}:0": tf.identity(one) for name, one in variables.items()}
        v1.import_graph_def(rest, input_map=read, name="")
        folder.mkdir(parents=True, exist_ok=True)
        return str(v1.train.Saver().save(session, str(folder / "model.ckpt")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A frozen graph as a checkpoint directory")
    parser.add_argument("frozen", type=Path, help="frozen_inference_graph.pb")
    parser.add_argument("folder", type=Path, help="where the checkpoint is to lie")
    given = parser.parse_args()
    print(convert(given.frozen, given.folder))
