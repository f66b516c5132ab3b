"""A model is a program: what touches files or calls Python is refused before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session as c_api

import lpot
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.reading.refuse import PLACES, refuse_acts
from lpot.core.backend import ModelSpec
from lpot.core.errors import UnsupportedModel

BACKEND = TensorflowBackend()
v1 = tf.compat.v1


def dense(x: Any) -> Any:
    weight = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    return tf.nn.relu(v1.nn.bias_add(tf.matmul(x, weight), np.zeros(8, np.float32)))


def written(path: str) -> Any:
    return tf.io.write_file(path, "pwned")


def printed(path: str) -> Any:
    return tf.print("pwned", output_stream=f"file://{path}")


def saved(path: str) -> Any:
    return tf.raw_ops.SaveV2(
        prefix=path, tensor_names=["x"], shape_and_slices=[""], tensors=[tf.constant(1.0)]
    )


def read(path: str) -> Any:
    return tf.io.read_file(path)


def listed(path: str) -> Any:
    return tf.io.matching_files(path)


def restored(path: str) -> Any:
    return tf.raw_ops.RestoreV2(
        prefix=path, tensor_names=["x"], shape_and_slices=[""], dtypes=[tf.float32]
    )


def kept(path: str) -> Any:
    return consumed(tf.data.Dataset.range(3).cache(path))


def recorded(path: str) -> Any:
    names = tf.data.Dataset.from_tensors(tf.constant("x"))
    variant = names._variant_tensor
    return tf.raw_ops.DatasetToTFRecord(input_dataset=variant, filename=path, compression_type="")


def queried(path: str) -> Any:
    return consumed(tf.data.experimental.SqlDataset("sqlite", path, "select 1", (tf.int32,)))


def through_reader(path: str) -> Any:
    queue = v1.FIFOQueue(1, tf.string)
    with tf.control_dependencies([queue.enqueue(path)]):
        return v1.TextLineReader().read(queue)[1]


def mapped(path: str) -> Any:
    return tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[1], memory_region_name=path)


def drawn(path: str) -> Any:
    return tf.raw_ops.RecordInput(file_pattern=path)


def consumed(data: Any) -> Any:
    return data.reduce(tf.constant(0, tf.int64), lambda sum, _: sum + 1)


ACTS: dict[str, Callable[[str], Any]] = {
    "WriteFile": written,
    "PrintV2": printed,
    "SaveV2": saved,
    "ReadFile": read,
    "MatchingFiles": listed,
    "RestoreV2": restored,
    "CacheDataset": kept,
    "DatasetToTFRecord": recorded,
    "SqlDataset": queried,
    "ReaderReadV2": through_reader,
    "ImmutableConst": mapped,
    "RecordInput": drawn,
}


def acting(act: Callable[[str], Any], path: str) -> Any:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, 8), name="x")
        made = act(path)
        first = made[0] if isinstance(made, list) else made
        operations = [] if first is None else [first]
        with tf.control_dependencies(operations):
            tf.identity(dense(x), name="y")
        return graph.as_graph_def()


def data() -> list[np.ndarray]:
    return [np.random.default_rng(2).standard_normal((4, 8)).astype(np.float32)]


def judge(graph: Any) -> float:
    with v1.Session(graph=graph) as session:
        return float(np.isfinite(session.run("y:0", {"x:0": data()[0]})).all())


@pytest.mark.parametrize("name", ACTS)
def test_a_graph_that_acts_is_refused(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = tmp_path / "model.pb"
    path.write_bytes(acting(ACTS[name], str(mark)).SerializeToString())
    with pytest.raises(UnsupportedModel, match=rf"is a {name}(V2)?, which .*trust: true"):
        lpot.tune(path, data(), judge, workspace=tmp_path / "ws", measure_speed=False)
    assert list(tmp_path.glob("mark*")) == []


def test_every_op_of_tensorflow_that_names_a_place_is_refused() -> None:
    """By TensorFlow's own list of ops: none that is let pass takes a file, folder or address."""
    names_a_place = re.compile(r"file_?name|.*(file|path|pattern|address|_dir|urls|region)", re.I)
    harmless = ("InitializeTableFromTextFile", "Sharded", "Regex", "StaticRegex", *PLACES)
    found = op_def_pb2.OpList()
    found.ParseFromString(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))
    passed = []
    for op in found.op:
        strings = [arg.name for arg in op.input_arg if arg.type == tf.string.as_datatype_enum]
        strings += [attr.name for attr in op.attr if attr.type == "string"]
        if any(names_a_place.match(name) for name in strings) and not op.name.startswith(harmless):
            graph = v1.GraphDef(node=[v1.NodeDef(name="it", op=op.name)])
            try:
                refuse_acts(graph, "all", ["it"])
            except UnsupportedModel:
                continue
            passed.append((op.name, strings))
    assert passed == []


def test_a_cache_in_memory_and_what_does_not_run_are_no_acts(tmp_path: Path) -> None:
    graph = acting(lambda _: consumed(tf.data.Dataset.range(3).cache()), "")
    assert BACKEND.load(graph).output_names
    with tf.Graph().as_default() as unused:
        x = v1.placeholder(tf.float32, (None, 8), name="x")
        tf.identity(dense(x), name="y")
        written(str(tmp_path / "mark"))
    assert BACKEND.load(unused.as_graph_def(), ModelSpec(outputs=("y",))).output_names


def test_one_that_is_trusted_runs(tmp_path: Path) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(acting(written, str(tmp_path / "mark")).SerializeToString())
    options: dict[str, Any] = {"workspace": tmp_path / "ws", "measure_speed": False}
    result = lpot.tune(path, data(), judge, trust=True, **options)
    assert result.met and (tmp_path / "mark").exists()
    with pytest.raises(UnsupportedModel, match="WriteFile"):  # it was said of that call alone
        BACKEND.load(path)
    config = {"model": {"name": "a", "trust": True}}
    assert lpot.tune(path, data(), judge, config=config, **options).met


def test_an_act_inside_of_a_function_is_found(tmp_path: Path) -> None:
    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32)])
        def call(self, x: Any) -> Any:
            def yes() -> Any:
                tf.io.write_file(str(tmp_path / "mark"), "pwned")
                return x

            return {"y": dense(tf.cond(tf.reduce_sum(x) > 0.0, yes, lambda: x))}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "net"), signatures=net.call)
    with pytest.raises(UnsupportedModel, match=r"in the function .*WriteFile"):
        BACKEND.load(tmp_path / "net")
    assert not (tmp_path / "mark").exists()


def test_an_initial_op_that_acts_does_not_run(tmp_path: Path) -> None:
    """TensorFlow runs a SavedModel's initial op while it loads it."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, (None, 8), name="x")
        y = tf.identity(dense(x), name="y")
        initial = tf.group(saved(str(tmp_path / "mark")))
        builder = v1.saved_model.Builder(str(tmp_path / "net"))
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=initial
        )
        builder.save()
    with pytest.raises(UnsupportedModel, match="SaveV2"):
        BACKEND.load(tmp_path / "net")
    assert list(tmp_path.glob("mark*")) == []


def test_ordinary_models_with_variables_are_not_taken_for_such(tmp_path: Path) -> None:
    class Net(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable(np.eye(8, dtype=np.float32))

        @tf.function(input_signature=[tf.TensorSpec((None, 8), tf.float32)])
        def call(self, x: Any) -> Any:
            return {"y": tf.matmul(x, self.weight)}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "net"), signatures=net.call)
    assert BACKEND.load(tmp_path / "net").output_names
