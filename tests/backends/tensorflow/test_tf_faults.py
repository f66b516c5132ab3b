"""Wrong models and functions through the whole of `tune`: said clearly, never wrong in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import lpot
from backends.tensorflow.nets import Maker, graph_of, images, little, rows
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.reading import freeze
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.core.errors import CalibrationError, ConfigError, EvaluationError, UnsupportedModel
from lpot.core.results.result import Result

BACKEND = TensorflowBackend()


def tuned(model: Any, calib: Any, folder: Path, evaluate: Any = None, **more: Any) -> Result:
    config = {"model": {"framework": "tensorflow", **more}}
    return lpot.tune(model, calib, evaluate, config=config, workspace=folder, measure_speed=False)


def accuracy(graph: tf.Graph) -> float:
    with v1.Session(graph=graph) as session:
        found = session.run("logits:0", {"x:0": images(1)[0][0]})
    return 1.0 + float(np.tanh(found).mean())


def nothing_to_quantize() -> GraphDef:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 32], name="x")
        tf.nn.softmax(x * 2.0, name="y")

    return graph_of(build)


def test_no_op_to_quantize_gives_the_fp32_model_flagged(tmp_path: Path) -> None:
    result = tuned(nothing_to_quantize(), rows(1), tmp_path, lambda graph: 0.9)
    assert result.met is True and not result.recipe.low_ops
    assert any("no op of this model can be quantized" in note for note in result.notes)
    assert result.path is not None and lpot.load(result.path).output_names == ("y",)


def test_a_graph_that_is_quantized_already_says_so(tmp_path: Path) -> None:
    first = tuned(little(), images(2), tmp_path / "first", accuracy)
    again = tuned(first.model.graph_def, images(2), tmp_path / "again", accuracy)
    assert any("already quantized" in note for note in again.notes)
    assert accuracy(again.model.graph) == pytest.approx(accuracy(first.model.graph), abs=0.02)


def test_an_eval_func_that_ignores_its_graph_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpot.jobs.tune.sense.BLIND", True)
    with pytest.raises(EvaluationError, match="must score the model that it is given"):
        tuned(little(), images(2), tmp_path, lambda graph: 0.75)


def test_misspelt_names_in_yaml_offer_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.outputs.*logitz.*logits"):
        tuned(little(), images(1), tmp_path, accuracy, outputs=["logitz"])
    with pytest.raises(ConfigError, match=r"model\.inputs.*no node 'X'"):
        tuned(little(), images(1), tmp_path, accuracy, inputs=["X"])


def test_a_loader_that_does_not_fit_is_found_before_anything_is_evaluated(tmp_path: Path) -> None:
    def never(graph: tf.Graph) -> float:
        raise AssertionError("evaluated")

    with pytest.raises(CalibrationError, match=r"first calibration batch.*got \[4, 32\]"):
        tuned(little(), rows(1, batch=4), tmp_path, never)


def test_weights_of_more_than_a_graph_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freeze, "LIMIT", 1000)
    keras = tf.keras
    net = keras.Sequential([keras.Input((32,)), keras.layers.Dense(32)])
    with pytest.raises(UnsupportedModel, match=r"more than one graph can hold.*ONNX"):
        BACKEND.load(net)
    net.export(tmp_path / "saved", verbose=False)
    with pytest.raises(UnsupportedModel, match="more than one graph can hold"):
        BACKEND.load(tmp_path / "saved")
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 32], name="x")
        w = v1.get_variable("w", [32, 32])
        v1.get_variable("slot_of_the_optimizer", [1000, 1000])
        tf.matmul(x, w, name="y")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(tmp_path / "ckpt" / "model"))
    restored: list[str] = []
    monkeypatch.setattr(v1.train.Saver, "restore", lambda *a: restored.append("restored"))
    with pytest.raises(UnsupportedModel, match="more than one graph can hold"):
        BACKEND.load(tmp_path / "ckpt")
    assert restored == [] and graph is not None
    monkeypatch.undo()
    monkeypatch.setattr(freeze, "LIMIT", 100_000)  # what the outputs don't need does not count
    assert BACKEND.load(tmp_path / "ckpt").output_names == ("y",)


def test_a_model_that_changes_its_own_variables_is_refused() -> None:
    keras = tf.keras
    x = keras.Input(batch_shape=(4, 6, 8))
    net = keras.Model(x, keras.layers.LSTM(8, stateful=True)(x))
    with pytest.raises(UnsupportedModel, match="stateful=False"):
        BACKEND.load(net)


def test_a_keras_model_that_was_never_called_is_refused() -> None:
    keras = tf.keras
    with pytest.raises(UnsupportedModel, match="never called"):
        BACKEND.load(keras.Sequential([keras.layers.Dense(4)]))
