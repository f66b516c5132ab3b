"""Every form a model comes in, and every way it can be wrong."""

from __future__ import annotations

import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import Maker, graph_of, image, images, little
from lpot.backends import detect
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.reading import load as loading
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.core.backend import ModelSpec
from lpot.core.errors import ConfigError, DataError, LpotError, UnsupportedModel
from lpot.core.recipe import Recipe
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
X = images(1)[0]


def quantized(model: Any, batches: list[Any]) -> Any:
    recipe = restrict(BACKEND.inspect(model), ()).default()
    return BACKEND.build(model, recipe, BACKEND.observe(model, batches, (0,))[0])


def close(model: Any, batches: list[Any]) -> None:
    """The model can be quantized and still says about the same."""
    built = quantized(model, batches)
    assert "int8" in built.precisions.values()
    truth, found = BACKEND.run(model, batches[0]), BACKEND.run(built, batches[0])
    for one, other in zip(truth, found, strict=True):
        assert np.abs(one - other).max() < 0.1 * np.abs(one).max()


def variable_graph() -> tuple[tf.Graph, Any]:
    """A graph of TensorFlow 1 with variables, and where its result is."""
    graph = tf.Graph()
    with graph.as_default():
        make = Maker()
        x = image()
        weight = v1.get_variable(
            "weight", initializer=make.random.normal(size=(3, 3, 8, 8)).astype("f")
        )
        made = tf.nn.relu(tf.nn.conv2d(x, weight, 1, "SAME", name="op"))
        kept = v1.get_variable("scale", initializer=np.ones(8, "f"), use_resource=True)
        y = tf.multiply(made, kept, name="y")
        v1.train.Saver(name="keeper")
    return graph, y


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    graph, _ = variable_graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    return tmp_path


def keras_net() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    x = keras.Input((16, 16, 8), name="pixels")
    y = keras.layers.Conv2D(8, 3, activation="relu")(x)
    y = keras.layers.BatchNormalization()(y)
    y = keras.layers.MaxPooling2D()(y)
    y = keras.layers.Conv2D(8, 3, padding="same", use_bias=False)(y)
    y = keras.layers.BatchNormalization()(y)
    y = keras.layers.ReLU()(y)
    y = keras.layers.Dense(8, activation="gelu")(y)
    y = keras.layers.GlobalAveragePooling2D()(y)
    return keras.Model(x, keras.layers.Dense(4, name="scores")(y))


# -- forms --------------------------------------------------------------------------------------


def test_a_frozen_file_with_and_without_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "net.pb").write_bytes(little().SerializeToString())
    for name in ("net.pb", "net"):
        model = BACKEND.load(tmp_path / name)
        assert model.input_tensor_names == ["x:0"]
        assert model.output_tensor_names == ["logits:0"]
        assert (model.form, model.model_type) == ("pb", "pb")
    close(model, [X])


def test_a_graph_def_and_a_live_graph_are_not_touched() -> None:
    graph_def = little()
    text = graph_def.SerializeToString(deterministic=True)
    close(BACKEND.load(graph_def), [X])
    assert graph_def.SerializeToString(deterministic=True) == text
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    count = len(graph.get_operations())
    close(BACKEND.load(graph), [X])
    assert len(graph.get_operations()) == count


def test_a_checkpoint_folder_a_prefix_and_a_meta_file(checkpoint: Path) -> None:
    for source in (checkpoint, checkpoint / "model.ckpt", checkpoint / "model.ckpt.meta"):
        model = BACKEND.load(source, ModelSpec(outputs=("y",)))
        assert model.form == "checkpoint"
        assert not any("Var" in node.op for node in model.net.nodes.values())
    close(model, [X])


def test_a_checkpoint_without_a_name(tmp_path: Path) -> None:
    graph, _ = variable_graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, f"{tmp_path}/")
    for source in (tmp_path, tmp_path / ".meta"):
        assert detect(source) == "tensorflow"
        assert BACKEND.load(source, ModelSpec(outputs=("y",))).form == "checkpoint"


def test_a_file_of_keras_2_names_what_reads_it(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    place = tmp_path / "old.h5"
    keras_net().save(place)
    with h5py.File(place, "r+") as file:
        file.attrs["keras_version"] = "2.15.0"
        file.attrs["model_config"] = file.attrs["model_config"].replace('"filters"', '"Filters"')
    with pytest.raises(UnsupportedModel, match=r"saved by Keras 2.15.0.*tf_keras"):
        BACKEND.load(place)


def test_outputs_of_a_checkpoint_are_found(checkpoint: Path) -> None:
    assert BACKEND.load(checkpoint).output_names == ("y",)


def test_a_folder_with_checkpoint_and_saved_model_is_read_as_checkpoint(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (checkpoint / "saved_model").mkdir()
    with caplog.at_level(logging.INFO):
        model = BACKEND.load(checkpoint, ModelSpec(outputs=("y",)))
    assert model.form == "checkpoint"
    assert "read as a checkpoint" in caplog.text


def test_a_live_session_and_the_graph_of_the_current_one() -> None:
    graph, _ = variable_graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        session.run(v1.global_variables_initializer())
        for source in (session, graph):
            close(BACKEND.load(source, ModelSpec(outputs=("y",))), [X])


def test_a_saved_model_of_tensorflow_1_keeps_its_names(tmp_path: Path) -> None:
    graph, y = variable_graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        session.run(v1.global_variables_initializer())
        x = graph.get_tensor_by_name("x:0")
        v1.saved_model.simple_save(session, str(tmp_path / "saved"), {"pixels": x}, {"scores": y})
    model = BACKEND.load(tmp_path / "saved")
    assert (model.input_names, model.output_names) == (("x",), ("y",))
    by_key = BACKEND.load(tmp_path / "saved", ModelSpec(inputs=("pixels",), outputs=("scores",)))
    assert by_key.output_names == ("y",)
    close(model, [X])


def test_a_saved_model_of_tensorflow_2(tmp_path: Path) -> None:
    class Net(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            random = np.random.default_rng(0)
            self.weight = tf.Variable(random.normal(size=(8, 8)).astype("f"))

        @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="rows")])
        def __call__(self, rows: Any) -> dict[str, Any]:
            return {"b": tf.nn.relu(rows @ self.weight), "a": rows @ self.weight}

    net = Net()
    tf.saved_model.save(net, str(tmp_path / "saved"), signatures=net.__call__)
    model = BACKEND.load(tmp_path / "saved")
    assert list(model.signature["inputs"]) == ["rows"]
    assert list(model.signature["outputs"]) == ["a", "b"]
    batch = (np.random.default_rng(1).normal(size=(4, 8)).astype("f"),)
    first, second = BACKEND.run(model, batch)
    np.testing.assert_array_equal(np.maximum(first, 0), second)
    close(model, [batch])


def test_a_keras_model_as_object_and_as_files(tmp_path: Path) -> None:
    net = keras_net()
    expected = net(X[0], training=False).numpy()
    net.save(tmp_path / "net.keras")
    net.save(tmp_path / "net.h5")
    for source in (net, tmp_path / "net.keras", tmp_path / "net.h5"):
        model = BACKEND.load(source)
        assert model.form == "keras"
        assert model.input_names == ("pixels",)
        np.testing.assert_allclose(BACKEND.run(model, X)[0], expected, rtol=1e-4, atol=1e-5)
    kinds = {key.kind for key, info in BACKEND.inspect(model).ops.items() if info.can_be_low}
    assert {"Conv2D", "MatMul", "MaxPool"} <= kinds
    close(model, [X])


def test_a_keras_model_is_saved_as_what_keras_can_load(tmp_path: Path) -> None:
    import keras

    built = quantized(BACKEND.load(keras_net()), [X])
    path = built.save(tmp_path / "out")
    assert (path / "saved_model.pb").is_file()
    layer = keras.layers.TFSMLayer(path, call_endpoint="serving_default")
    found = next(iter(layer(X[0]).values())).numpy()
    np.testing.assert_array_equal(found, BACKEND.run(built, X)[0])
    again = BACKEND.restore(path)
    assert again.recipe == built.recipe
    np.testing.assert_array_equal(BACKEND.run(again, X)[0], found)


def test_a_keras_file_name_gets_a_saved_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = BACKEND.load(keras_net()).save(tmp_path / "out.keras")
    assert path == tmp_path / "out"
    assert "TFSMLayer" in caplog.text
    assert BACKEND.restore(path).output_names


def test_saving_over_an_old_one_removes_nothing_else(tmp_path: Path) -> None:
    model = BACKEND.load(keras_net())
    target = tmp_path / "out"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    model.save(target)
    model.save(target)
    assert (target / "notes.txt").read_text() == "mine"
    assert BACKEND.load(target).output_names


def test_control_flow_and_functions_load_run_and_are_left_alone() -> None:
    def build(make: Maker) -> None:
        v1.disable_control_flow_v2()
        try:
            x = image()
            steps = v1.while_loop(
                lambda i, _: i < 3,
                lambda i, v: (i + 1, tf.nn.relu(make.conv(v, 8, name="inside"))),
                [0, x],
            )[1]
        finally:
            v1.enable_control_flow_v2()

        @tf.function
        def double(v: Any) -> Any:
            return v * 2.0

        tf.identity(tf.nn.relu(make.conv(double(steps), 8, name="outside")), name="y")

    graph_def = graph_of(build)
    assert graph_def.library.function
    model = BACKEND.load(graph_def, ModelSpec(outputs=("y",)))
    reasons = {key.name: info.reason for key, info in BACKEND.inspect(model).ops.items()}
    inside = next(name for name in reasons if name.endswith("inside"))
    assert "while loop" in reasons[inside]
    close(model, [X])


def test_a_branch_that_is_not_taken_is_left_alone() -> None:
    def build(make: Maker) -> None:
        v1.disable_control_flow_v2()
        try:
            x = image()
            first = tf.nn.relu(make.conv(x, 8, name="first"))
            made = v1.cond(
                tf.reduce_sum(x) > 1e9,
                lambda: tf.nn.relu(make.conv(first, 8, name="never")),
                lambda: tf.nn.relu(make.conv(first, 8, name="always")),
            )
            tf.identity(tf.nn.relu(make.conv(made, 8, name="last")), name="y")
        finally:
            v1.enable_control_flow_v2()

    model = BACKEND.load(graph_of(build))
    ops = {key.name.split("/")[-1]: info for key, info in BACKEND.inspect(model).ops.items()}
    assert "conditional" in ops["never"].reason
    assert ops["first"].can_be_low
    assert ops["last"].can_be_low
    close(model, [X])


def test_what_saved_tells_at_loading_time(tmp_path: Path) -> None:
    built = quantized(BACKEND.load(little()), [X])
    path = built.save(tmp_path / "best")
    assert path.name == "best.pb"
    again = BACKEND.load(path)
    capability = BACKEND.inspect(again)
    assert any("already quantized" in note for note in capability.notes)
    assert any("no op" in note for note in capability.notes)
    assert not capability.low()
    assert BACKEND.restore(tmp_path / "best").recipe == built.recipe


# -- what is wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (ModelSpec(outputs=("logit",)), "did you mean 'logits'"),
        (ModelSpec(inputs=("xx",)), "no node 'xx'"),
        (ModelSpec(outputs=("logits:3",)), "1 output"),
        (ModelSpec(inputs=("stem/relu",), outputs=("stem",)), r"placeholder.*'x'"),
    ],
)
def test_misspelt_ends_are_named(spec: ModelSpec, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BACKEND.load(little(), spec)


def test_a_graph_can_be_fed_in_its_middle() -> None:
    model = BACKEND.load(little(), ModelSpec(inputs=("pool",), outputs=("logits",)))
    (found,) = BACKEND.run(model, (np.ones((2, 8, 8, 16), np.float32),))
    assert found.shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("net.pb", b"", "empty"),
        ("net.pb", b"PK\x03\x04rest", "zip archive"),
        ("net.pb", b"\x89HDF\r\n", "HDF5"),
        ("net.pb", b"\x80\x04\x95pickled", "pickle"),
        ("net.pb", b"this is a text about a model\n" * 20, "not a readable GraphDef|no nodes"),
        ("net.pb", b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
        ("net.keras", b"not a zip", "not a readable Keras model"),
        ("net.h5", b"not a hdf file", "not a readable Keras model"),
        ("net.pbtxt", b"node { name: 'x' op: ", "not a readable GraphDef"),
    ],
)
def test_foreign_files_are_refused_by_name(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnsupportedModel, match=words) as caught:
        BACKEND.load(tmp_path / name)
    assert name in str(caught.value)


def test_a_truncated_file_is_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    whole = little().SerializeToString()
    for share in (0.1, 0.5, 0.9, 0.999):
        (tmp_path / "net.pb").write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(LpotError):
            BACKEND.load(tmp_path / "net.pb", ModelSpec(outputs=("logits",)))


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "other.pb").write_bytes(b"x")
    with pytest.raises(UnsupportedModel, match=r"no such file.*other\.pb"):
        BACKEND.load(tmp_path / "net.pb")


def test_folders_that_hold_no_model(tmp_path: Path, checkpoint: Path) -> None:
    (checkpoint / "model.ckpt.meta").unlink()
    with pytest.raises(UnsupportedModel, match=r"no \.meta file"):
        BACKEND.load(checkpoint)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UnsupportedModel, match="neither a SavedModel"):
        BACKEND.load(empty)
    (empty / "saved_model.pb").write_bytes(b"damaged")
    with pytest.raises(UnsupportedModel, match="can't be read"):
        BACKEND.load(empty)


def test_a_lambda_layer_is_not_run_from_a_file(tmp_path: Path) -> None:
    import keras

    x = keras.Input((4,))
    net = keras.Model(x, keras.layers.Lambda(lambda v: v * 2)(keras.layers.Dense(4)(x)))
    for name in ("net.keras", "net.h5"):
        net.save(tmp_path / name)
        with pytest.raises(UnsupportedModel, match="Lambda"):
            BACKEND.load(tmp_path / name)
    assert BACKEND.load(net).output_names  # the object is the caller's own


def test_variables_without_values_are_refused() -> None:
    graph, _ = variable_graph()
    with pytest.raises(UnsupportedModel, match="variable"):
        BACKEND.load(graph, ModelSpec(outputs=("y",)))


def test_python_functions_inside_are_refused() -> None:
    def build(make: Maker) -> None:
        tf.identity(tf.numpy_function(np.square, [image()], tf.float32), name="y")

    with pytest.raises(UnsupportedModel, match="Python process"):
        BACKEND.load(graph_of(build))


def test_more_than_2_gib_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.pb").write_bytes(b"x" * 2000)
    monkeypatch.setattr(loading, "LIMIT", 1000)
    with pytest.raises(UnsupportedModel, match="2 GiB"):
        BACKEND.load(tmp_path / "net.pb")


@pytest.mark.parametrize("source", [7, None, {"a": 1}, np.zeros(3)])
def test_other_objects_are_refused_with_what_is_taken(source: Any) -> None:
    with pytest.raises(UnsupportedModel, match="it takes a path"):
        BACKEND.load(source)


def test_estimators_get_a_clear_word() -> None:
    kind = type("Estimator", (), {"__module__": "tensorflow_estimator.estimator"})
    with pytest.raises(UnsupportedModel, match="export_saved_model"):
        BACKEND.load(kind())


def test_dynamic_quantization_is_refused_with_what_to_use() -> None:
    model = BACKEND.load(little())
    with pytest.raises(ConfigError, match="post_training_static_quant"):
        BACKEND.inspect(model, "dynamic")
    assert any("static" in note for note in BACKEND.inspect(model, "auto").notes)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (
            (np.zeros((2, 16, 16, 3), np.float32),),
            r"'x' expects shape \[\?, 16, 16, 8\], got \[2, 16, 16, 3\]",
        ),
        ((np.zeros((16, 16, 8), np.float32),), r"\[16, 16, 8\]: is the batch dimension missing"),
        ((np.zeros(1), np.zeros(1)), "1 input"),
        ({"y": np.zeros(1)}, "'x' is missing"),
        ((np.array(["a"]),), "float32"),
    ],
)
def test_batches_that_do_not_fit_are_told_what_was_expected(inputs: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        BACKEND.run(BACKEND.load(little()), inputs)


def test_inputs_are_taken_by_name_and_cast_within_their_kind() -> None:
    model = BACKEND.load(little())
    whole = np.random.default_rng(0).integers(0, 9, (2, 16, 16, 8))
    expected = BACKEND.run(model, (whole.astype(np.float32),))[0]
    for given in ({"x:0": whole.astype(np.float64)}, (whole.tolist(),)):
        np.testing.assert_array_equal(BACKEND.run(model, given)[0], expected)
    with pytest.raises(DataError, match="'x' expects float32, got uint8: convert it in the loader"):
        BACKEND.run(model, {"x": whole.astype(np.uint8)})


def test_a_recipe_for_an_unknown_op_says_so() -> None:
    model = BACKEND.load(little())
    recipe = restrict(BACKEND.inspect(model), ()).default()
    key, config = next(iter(recipe.ops.items()))
    wrong = Recipe({type(key)("nowhere", key.kind): config})
    with pytest.raises(UnsupportedModel, match="nowhere"):
        BACKEND.build(model, wrong, BACKEND.observe(model, [X], (0,))[0])


def test_a_big_graph_is_let_go_between_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def give_back() -> None:
        gc.collect()
        held.append(seen() is not None)

    monkeypatch.setattr("lpot.backends.tensorflow.model.HEAVY", 0)
    monkeypatch.setattr("lpot.backends.tensorflow.model.give_back", give_back)
    model = BACKEND.load(little())
    (batch,) = images(1)
    first = BACKEND.run(model, batch)
    seen = weakref.ref(model.graph)
    model.close()
    assert held == [False]
    np.testing.assert_array_equal(BACKEND.run(model, batch)[0], first[0])
    model.close()
