"""Models in the forms that strangers bring: each is tuned, and gives what it gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import lpot
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.core.backend import ModelSpec
from lpot.core.errors import ConfigError, UnsupportedModel
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
RANDOM = np.random.default_rng(0)
keras = tf.keras
layers = keras.layers


def values(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


IMAGES = [values(4, 12, 12, 3) for _ in range(2)]
WORDS = [np.array(["a b", "hello c", "b b c", "x"], object) for _ in range(2)]


def quantized(
    source: Any, batches: list[Any], **spec: Any
) -> tuple[TensorflowModel, TensorflowModel]:
    model = BACKEND.load(source, ModelSpec(sample=lambda: batches[0], **spec))
    feeds = [batch if isinstance(batch, dict | tuple) else (batch,) for batch in batches]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    return model, BACKEND.build(model, recipe, BACKEND.observe(model, feeds, (0,))[0])


def int8_ops(low: TensorflowModel) -> int:
    return sum(word == "int8" for word in low.precisions.values())


def near(found: Any, truth: Any) -> bool:
    one, other = np.asarray(found, np.float64), np.asarray(truth, np.float64)
    return bool(np.sqrt(((one - other) ** 2).mean()) <= 0.1 * np.sqrt((other**2).mean()) + 1e-6)


class Module(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.v = tf.Variable(values(3, 3, 3, 8)), tf.Variable(values(8, 4))

    @tf.function
    def __call__(self, x: Any) -> Any:
        return tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(x, self.w, 1, "SAME")), [1, 2]) @ self.v


class Words(keras.Model):
    """Subclassed, with integers going in: nothing but a batch tells their type."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.hidden = layers.Embedding(50, 16), layers.Dense(32, activation="relu")
        self.out = layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(tf.reduce_mean(self.embed(x), 1)))


class Pair(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.out = layers.Dense(32), layers.Dense(32), layers.Dense(4)

    def call(self, p: Any, q: Any) -> Any:
        return {"sum": self.out(self.one(p) + self.two(q)), "p": self.out(self.one(p))}


def texts() -> Any:
    words = layers.TextVectorization(output_sequence_length=6, vocabulary=["a", "b", "c", "hello"])
    x = given = keras.Input((), dtype="string")
    x = layers.Flatten()(layers.Embedding(10, 16)(words(x)))
    return keras.Model(given, layers.Dense(3)(layers.Dense(16, activation="relu")(x)))


def convs(policy: str = "float32", **kwargs: Any) -> Any:
    keras.mixed_precision.set_global_policy(policy)
    try:
        x = given = keras.Input(kwargs.pop("shape", (12, 12, 3)))
        x = layers.Conv2D(8, 3, activation="relu", **kwargs)(x)
        x = layers.Conv2D(8, 3, activation="relu", **kwargs)(x)
        x = layers.GlobalAveragePooling2D(**kwargs)(x)
        return keras.Model(given, layers.Dense(3, dtype="float32")(x))
    finally:
        keras.mixed_precision.set_global_policy("float32")


MODULE = Module()
SPEC = tf.TensorSpec([None, 12, 12, 3], tf.float32, "x")


@pytest.mark.parametrize(
    "source",
    [
        MODULE,
        MODULE.__call__,
        tf.function(lambda x: MODULE(x)),
        tf.function(lambda x: MODULE(x), input_signature=[SPEC]),
        MODULE.__call__.get_concrete_function(SPEC),
    ],
    ids=["module", "method", "function", "with signature", "concrete"],
)
def test_functions_and_modules(source: Any) -> None:
    model, low = quantized(source, IMAGES)
    assert int8_ops(low) == 2
    assert model.inputs[0].shape == (None, 12, 12, 3)
    assert near(low.native(IMAGES[0]), MODULE(IMAGES[0]))


def test_a_module_that_can_not_be_called_names_its_functions() -> None:
    class Parts(tf.Module):
        @tf.function
        def encode(self, x: Any) -> Any:
            return x

    with pytest.raises(UnsupportedModel, match=r"without __call__.*encode"):
        BACKEND.load(Parts(), ModelSpec(sample=lambda: IMAGES[0]))


@pytest.mark.parametrize("called", [True, False])
def test_a_subclassed_model_takes_the_type_of_the_batch(called: bool, tmp_path: Path) -> None:
    model, ids = Words(), [RANDOM.integers(0, 50, (4, 10)).astype(np.int32) for _ in range(2)]
    if called:
        model(ids[0])
    loaded, low = quantized(model, ids)
    assert loaded.inputs[0].dtype == "int32" and loaded.inputs[0].shape == (None, 10)
    assert near(low.native(ids[0]), model(ids[0]))
    again = tf.saved_model.load(str(low.save(tmp_path / "saved"))).signatures["serving_default"]
    (spec,) = again.structured_input_signature[1].values()
    assert spec.dtype == tf.int32


def test_two_arguments_and_a_dict_come_back_as_they_were() -> None:
    model, data = Pair(), [(values(4, 8), values(4, 6)) for _ in range(2)]
    _, low = quantized(model, data)
    truth, found = model(*data[0]), low.native(*data[0])
    assert list(found) == list(truth) and all(near(found[key], truth[key]) for key in truth)


def test_inputs_and_outputs_by_name() -> None:
    p, q = keras.Input((8,), name="p"), keras.Input((6,), name="q")
    x = layers.Dense(32, activation="relu")(layers.Concatenate()([p, q]))
    model = keras.Model({"p": p, "q": q}, {"b": layers.Dense(3)(x), "a": layers.Dense(2)(x)})
    data = [{"p": values(4, 8), "q": values(4, 6)} for _ in range(2)]
    _, low = quantized(model, data)
    found = low.native(data[0], training=False)
    assert {key: value.shape for key, value in found.items()} == {"a": (4, 2), "b": (4, 3)}
    many = {key: np.concatenate([batch[key] for batch in data]) for key in data[0]}
    assert low.native.predict(many, batch_size=3, verbose=0)["a"].shape == (8, 2)


def test_what_evaluate_gets_is_a_graph_and_can_be_called(tmp_path: Path) -> None:
    model = convs()
    scores = []

    def evaluate(graph: Any) -> float:
        assert isinstance(graph, tf.Graph) and graph.graph is graph
        with v1.Session(graph=graph) as session:  # as the tutorials do it
            name = graph.output_names[0] + ":0"
            feeds = {graph.input_names[0] + ":0": IMAGES[0]}
            old = session.run(graph.get_tensor_by_name(name), feeds)
        new = graph(IMAGES[0])
        data = tf.data.Dataset.from_tensor_slices((IMAGES[0], np.zeros(4))).batch(3)
        assert np.array_equal(old, new.numpy())
        assert np.allclose(graph.predict(data), old, atol=1e-4)
        scores.append(float(near(new, model(IMAGES[0]))))
        return scores[-1]

    result = lpot.tune(model, IMAGES, evaluate, workspace=tmp_path, measure_speed=False)
    assert result.met and scores[:2] == [1.0, 1.0]


@pytest.mark.parametrize("form", ["object", "saved"])
def test_lookup_tables_stay_in_the_model(form: str, tmp_path: Path) -> None:
    model = source = texts()
    if form == "saved":
        source = str(tmp_path / "exported")
        model.export(source, verbose=False)
    _, low = quantized(source, WORDS)
    truth = model(tf.constant(WORDS[0]))
    assert int8_ops(low) == 2 and near(low(WORDS[0])[0], truth)
    for target in (tmp_path / "folder", tmp_path / "frozen.pb"):
        written = low.save(target)
        assert np.array_equal(lpot.load(written)(WORDS[0])[0], low(WORDS[0])[0])
    stock = tf.saved_model.load(str(tmp_path / "folder")).signatures["serving_default"]
    (found,) = stock(tf.constant(WORDS[0])).values()
    assert np.array_equal(found, low(WORDS[0])[0])


def test_a_frozen_graph_with_an_empty_table_is_refused() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.string, [None], name="x")
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([1], tf.int64)), 0
        )
        tf.cast(table.lookup(x), tf.float32, name="y")
    names = ["y"]
    frozen = v1.graph_util.extract_sub_graph(graph.as_graph_def(), names)
    with pytest.raises(UnsupportedModel, match="has no contents"):
        BACKEND.load(frozen)
    whole = BACKEND.load(graph.as_graph_def(), ModelSpec(inputs=("x",), outputs=("y",)))
    assert whole(np.array(["a", "b"], object))[0].tolist() == [1.0, 0.0]


def test_colocated_nodes_of_another_time() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, 12, 12, 3], name="x")
        y = tf.nn.bias_add(tf.nn.conv2d(x, values(3, 3, 3, 8), 1, "SAME", name="conv"), values(8))
        tf.reduce_mean(tf.nn.relu(y, name="relu"), [1, 2], name="y")
    frozen = graph.as_graph_def()
    for node in frozen.node:
        if node.name in ("relu", "y"):
            node.attr["_class"].list.s.append(b"loc:@" + (b"conv" if node.name == "y" else b"gone"))
    _, low = quantized(frozen, IMAGES)
    assert int8_ops(low) == 1
    assert any(node.attr["_class"].list.s for node in frozen.node)  # the caller's is not touched


def test_a_saved_model_with_objects_nobody_can_rebuild(tmp_path: Path) -> None:
    """What Keras 2 saves with an optimizer: slots of an object that has no add_slot."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    tf.saved_model.save(MODULE, tmp_path, signatures=MODULE.__call__.get_concrete_function(SPEC))
    parsed = SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    objects = parsed.meta_graphs[0].object_graph_def.nodes
    one, two = (k for k, node in enumerate(objects) if node.WhichOneof("kind") == "variable")
    slot = objects[0].slot_variables.add(slot_name="m")
    slot.original_variable_node_id, slot.slot_variable_node_id = one, two
    (tmp_path / "saved_model.pb").write_bytes(parsed.SerializeToString())
    with pytest.raises(AttributeError, match="add_slot"):
        tf.saved_model.load(str(tmp_path))
    _, low = quantized(str(tmp_path), IMAGES)
    assert int8_ops(low) == 2 and near(low(IMAGES[0])[0], MODULE(IMAGES[0]))


def test_one_of_several_signatures(tmp_path: Path) -> None:
    function = MODULE.__call__.get_concrete_function(SPEC)
    tf.saved_model.save(MODULE, tmp_path, signatures={"one": function, "two": function})
    with pytest.raises(UnsupportedModel, match=r"one, two.*signature"):
        BACKEND.load(str(tmp_path))
    with pytest.raises(ConfigError, match="did you mean 'two'"):
        BACKEND.load(str(tmp_path), ModelSpec(signature="twoo"))
    result = lpot.tune(
        tmp_path, IMAGES, signature="two", workspace=tmp_path / "w", measure_speed=False
    )
    assert result.precisions["int8"] == 2


@pytest.mark.parametrize(
    ("name", "match"),
    [("m.tflite", "TensorFlow Lite.*made from"), ("model.json", "TensorFlow.js.*made from")],
)
def test_converted_models_say_what_to_give(name: str, match: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(UnsupportedModel, match=match):
        lpot.tune(tmp_path / name, IMAGES, workspace=tmp_path / "w")


def test_hdf5(tmp_path: Path) -> None:
    model = convs()
    model.save(tmp_path / "m.h5")
    (tmp_path / "m.h5").rename(tmp_path / "m.hdf5")
    result = lpot.tune(tmp_path / "m.hdf5", IMAGES, workspace=tmp_path / "w", measure_speed=False)
    assert result.precisions["int8"] == 3


def test_why_a_model_can_not_be_traced() -> None:
    class Bad(keras.Model):
        def call(self, x: Any) -> Any:
            raise ValueError("seventeen is too much")

    with pytest.raises(UnsupportedModel, match="seventeen is too much") as caught:
        BACKEND.load(Bad(), ModelSpec(sample=lambda: IMAGES[0]))
    assert "in user code" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
def test_mixed_precision_becomes_int8_and_is_told(policy: str) -> None:
    model = convs(policy)
    loaded, low = quantized(model, IMAGES)
    assert int8_ops(low) == 3
    assert any("mixed precision" in note for note in BACKEND.inspect(loaded).notes)
    assert near(low(IMAGES[0])[0], tf.cast(model(IMAGES[0]), tf.float32))


def test_inputs_and_outputs_of_sixteen_bits_keep_their_type() -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float16, [None, 8], name="x")
        y = tf.nn.relu(tf.matmul(x, tf.constant(values(8, 16), tf.float16)))
        tf.matmul(y, tf.constant(values(16, 4), tf.float16), name="y")
    data = [values(4, 8).astype(np.float16) for _ in range(2)]
    loaded, low = quantized(graph.as_graph_def(), data)
    assert int8_ops(low) == 2
    assert loaded.inputs[0].dtype == "float16" and low(data[0])[0].dtype == np.float16


def channels_first(ends: str) -> GraphDef:
    def vector(size: int) -> np.ndarray:
        return np.abs(values(size)) + 0.5

    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, 3, 12, 12], name="x")
        y = tf.nn.conv2d(x, values(3, 3, 3, 8), [1, 1, 2, 2], "SAME", data_format="NCHW")
        y = tf.nn.relu(tf.nn.bias_add(y, values(8), data_format="NCHW"))
        pads = [[0, 0], [0, 0], [1, 0], [2, 1]]
        z = tf.nn.conv2d(tf.pad(y, pads), values(2, 4, 8, 8), 1, "VALID", data_format="NCHW")
        z = tf.nn.relu(z + y) * values(8, 1, 1) + values(1, 8, 1, 1)
        parts = [vector(8) for _ in range(4)]
        z, _, _ = v1.nn.fused_batch_norm(z, *parts, data_format="NCHW", is_training=False)
        z = tf.nn.max_pool2d(z, [1, 1, 2, 1], [1, 1, 2, 1], "SAME", data_format="NCHW")
        deep = values(3, 3, 8, 1)
        z = tf.nn.depthwise_conv2d(z, deep, [1, 1, 1, 1], "SAME", data_format="NCHW")
        if ends == "conv":
            tf.nn.conv2d(z, values(1, 1, 8, 4), 1, "SAME", data_format="NCHW", name="y")
        elif ends == "mean":
            tf.matmul(tf.reduce_mean(tf.concat([z, z], 1), [2, 3]), values(16, 4), name="y")
        elif ends == "flat":
            tf.matmul(tf.reshape(z, [-1, 8 * 3 * 6]), values(144, 4), name="y")
        else:
            tf.reduce_max(tf.transpose(z, [0, 2, 3, 1]), [3], name="y")
    return graph.as_graph_def()


@pytest.mark.parametrize("ends", ["conv", "mean", "flat", "transposed"])
def test_channels_first_becomes_int8(ends: str) -> None:
    data = [values(2, 3, 12, 12) for _ in range(2)]
    model, low = quantized(channels_first(ends), data)
    prepared = model.prepared
    again = TensorflowModel(BACKEND, prepared.net)
    truth = BACKEND.run(model, (data[0],))[0]
    assert np.allclose(BACKEND.run(again, (data[0],))[0], truth, rtol=1e-3, atol=1e-3)
    kinds = {key.kind: word for key, word in low.precisions.items()}
    assert kinds["Conv2D"] == kinds["DepthwiseConv2dNative"] == "int8"
    assert near(low(data[0])[0], truth)


def test_what_has_no_kernel_is_told() -> None:
    x = given = keras.Input((6, 6, 6, 3))
    out = layers.Dense(3)(layers.GlobalAveragePooling3D()(layers.Conv3D(4, 2)(x)))
    notes = BACKEND.inspect(BACKEND.load(keras.Model(given, out))).notes
    assert any("1 Conv3D op(s) stay in FP32" in note for note in notes), notes


def test_what_keras_has_quantized_is_told() -> None:
    net = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
    net.quantize("int8")
    (product,) = BACKEND.inspect(BACKEND.load(net)).ops.values()
    assert "give the model as it was before that" in product.reason


@pytest.mark.parametrize("spelt", [False, True])
def test_batch_norms_in_training_mode_are_told(spelt: bool) -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [None, 6, 6, 3], name="x")
        if spelt:
            mean, variance = tf.nn.moments(x, [0, 1, 2])
            y = tf.nn.batch_normalization(x, mean, variance, values(3), values(3), 1e-3)
        else:
            y, _, _ = v1.nn.fused_batch_norm(x, values(3), values(3), is_training=True)
        tf.identity(tf.nn.conv2d(y, values(1, 1, 3, 4), 1, "SAME"), name="y")
    notes = BACKEND.inspect(BACKEND.load(graph.as_graph_def(), ModelSpec(outputs=("y",)))).notes
    assert any("1 batch norm(s) run in training mode" in note for note in notes), notes


def test_a_dataset_calibrates(tmp_path: Path) -> None:
    data = tf.data.Dataset.from_tensor_slices((np.concatenate(IMAGES), np.zeros(8))).batch(4)
    result = lpot.tune(convs(), data, workspace=tmp_path, measure_speed=False)
    assert result.precisions["int8"] == 3
