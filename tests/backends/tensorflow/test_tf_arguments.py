"""What models are called with: by name, by choice, in nests, and for nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from lpot.backends import detect
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.core.backend import ModelSpec
from lpot.core.errors import DataError, UnsupportedModel
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
keras = tf.keras
layers = keras.layers


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def told_by(batch: Any) -> ModelSpec:
    return ModelSpec(sample=lambda: batch)


def half_used() -> Any:
    used, unused = keras.Input((8,), name="used"), keras.Input((4,), name="unused")
    return keras.Model([used, unused], layers.Dense(3, name="end")(used))


def old_half_used(place: Path) -> Path:
    with tf.Graph().as_default(), v1.Session() as session:
        used, unused = (v1.placeholder(tf.float32, [None, n], name=f"in{n}") for n in (8, 4))
        end = tf.matmul(used, tf.constant(rows(8, 3)))
        v1.saved_model.simple_save(
            session, str(place), {"used": used, "unused": unused}, {"end": end}
        )
    return place


@pytest.mark.parametrize("form", ["model", "exported", "TensorFlow 1"])
def test_an_input_that_no_output_needs_is_still_taken(form: str, tmp_path: Path) -> None:
    source: Any = half_used()
    if form == "exported":
        source.export(str(tmp_path / "saved"), verbose=False)
    elif form == "TensorFlow 1":
        old_half_used(tmp_path / "saved")
    model = BACKEND.load(source if form == "model" else tmp_path / "saved")
    assert len(model.inputs) == 2 and model.inputs[0].dtype == model.inputs[1].dtype == "float32"
    sizes = [spec.shape[-1] for spec in model.inputs]
    batch = tuple(rows(5, size) for size in sizes)
    recipe = restrict(BACKEND.inspect(model), ()).default()
    low = BACKEND.build(model, recipe, BACKEND.observe(model, [batch], (0,))[0])
    again = BACKEND.restore(BACKEND.save(low, tmp_path / "low"))
    assert len(again.inputs) == 2
    np.testing.assert_array_equal(BACKEND.run(again, batch)[0], BACKEND.run(low, batch)[0])


def test_arguments_that_are_given_by_name_alone(tmp_path: Path) -> None:
    weight = tf.constant(rows(8, 8))

    @tf.function
    def call(a: Any, *, b: Any) -> Any:
        return {"sum": tf.nn.relu(a @ weight) + b}

    batch = {"a": rows(4, 8), "b": rows(4, 8)}
    model = BACKEND.load(call, told_by(batch))
    assert sorted(model.signature["inputs"]) == ["a", "b"]
    found = model.native(batch["a"], b=batch["b"])["sum"]
    np.testing.assert_allclose(found, call(batch["a"], b=batch["b"])["sum"], rtol=1e-5)


class Gated(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = layers.Dense(16, activation="relu"), layers.Dense(4)

    def call(self, p: Any, gate: Any = None, shift: Any = None) -> Any:
        hidden = self.one(p)
        hidden = hidden if gate is None else hidden * gate
        return self.two(hidden if shift is None else hidden + shift)


def test_optional_arguments_are_those_that_the_data_name() -> None:
    net, p, gate, shift = Gated(), rows(4, 8), rows(4, 16), rows(4, 16)
    named = BACKEND.load(net, told_by({"p": p, "shift": shift}))
    np.testing.assert_allclose(named.native(p, shift=shift), net(p, shift=shift), rtol=1e-5)
    alone = BACKEND.load(net, told_by((p, np.zeros(4))))  # the second are labels
    np.testing.assert_allclose(alone.native(p), net(p), rtol=1e-5)
    with pytest.raises(DataError, match=r"takes 1 argument.* got 2.*by name"):
        alone.native(p, gate)


class Nested(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.one = layers.Dense(3)

    def call(self, given: Any) -> Any:
        found = self.one(given["parts"]["main"])
        return {"z": (found, [given.get("scale", found) * 2.0])}


@pytest.mark.parametrize("more", [{}, {"scale": rows(4, 1)}], ids=["one", "two"])
def test_a_subclassed_model_takes_dicts_of_dicts(more: dict[str, Any]) -> None:
    net, batch = Nested(), {"parts": {"main": rows(4, 8)}, **more}
    model = BACKEND.load(net, told_by(batch))
    found, expected = model.native(batch), net(batch)
    tf.nest.assert_same_structure(found, expected)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_graph_that_draws_random_numbers_is_saved(tmp_path: Path) -> None:
    weight = tf.constant(rows(8, 8))

    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
    def call(x: Any) -> Any:
        return tf.matmul(x, weight) + tf.random.normal([8])

    model, batch = BACKEND.load(call), (rows(4, 8),)
    recipe = restrict(BACKEND.inspect(model), ()).default()
    low = BACKEND.build(model, recipe, BACKEND.observe(model, [batch], (0,))[0])
    assert BACKEND.save(low, tmp_path / "m.pb").exists()


def test_a_folder_of_tensorflow_js_is_known(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"format": "graph-model"}', "utf-8")
    (tmp_path / "group1-shard1of1.bin").write_bytes(b"0")
    assert detect(tmp_path) == "tensorflow"
    with pytest.raises(UnsupportedModel, match=r"TensorFlow\.js.*SavedModel"):
        BACKEND.load(tmp_path)


RECURRENT: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: layers.LSTM(4, dropout=0.2, recurrent_dropout=0.1),
    "GRU": lambda: layers.GRU(4, dropout=0.2),
    "SimpleRNN": lambda: layers.SimpleRNN(4, dropout=0.2),
    "both ways": lambda: layers.Bidirectional(layers.LSTM(4, dropout=0.2)),
}


@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_layers_with_dropout(kind: str) -> None:
    """Keras counts up the seed of their dropout in each call: no output reads it then."""
    keras.utils.set_random_seed(3)
    given = keras.Input((5, 6))
    net = keras.Model(given, RECURRENT[kind]()(given))
    seeds = [item.numpy() for item in net.non_trainable_variables]
    model = BACKEND.load(net, told_by(rows(2, 5, 6)))
    assert np.array_equal(seeds, [item.numpy() for item in net.non_trainable_variables])
    assert np.allclose(BACKEND.run(model, (rows(2, 5, 6),))[0], net(rows(2, 5, 6)), atol=1e-6)


class Counting(tf.Module):
    """Counts its calls; the count is in what it gives, or not."""

    def __init__(self, tells: bool) -> None:
        self.count, self.tells = tf.Variable(1.0, trainable=False), tells
        self.weight = tf.Variable(rows(6, 3))

    @tf.function
    def __call__(self, x: Any) -> Any:
        made = tf.matmul(x, self.weight)
        made = made * self.count if self.tells else made
        self.count.assign_add(1.0)
        return made


def test_a_variable_that_is_changed_is_left_out_or_refused() -> None:
    counting = Counting(tells=False)
    model = BACKEND.load(counting, told_by(rows(2, 6)))
    assert float(counting.count) == 1.0
    assert np.allclose(BACKEND.run(model, (rows(2, 6),))[0], counting(rows(2, 6)), atol=1e-6)
    with pytest.raises(UnsupportedModel, match="change its own variables"):
        BACKEND.load(Counting(tells=True), told_by(rows(2, 6)))


def test_what_is_traced_otherwise_with_open_sizes_is_traced_with_those_of_the_batch() -> None:
    """TimeDistributed counts its steps by the batch where their number is left open."""
    given = keras.Input((None, 6))
    net = keras.Model(given, layers.TimeDistributed(layers.Dense(4))(given))
    model = BACKEND.load(net, told_by(rows(2, 5, 6)))
    assert np.allclose(BACKEND.run(model, (rows(2, 5, 6),))[0], net(rows(2, 5, 6)), atol=1e-6)
    again = rows(3, 5, 6)  # the batch may still have any size
    assert np.allclose(BACKEND.run(model, (again,))[0], net(again), atol=1e-6)


def test_a_graph_that_is_not_its_model_is_refused() -> None:
    @tf.function(input_signature=[tf.TensorSpec((None, 6))])
    def growing(x: Any) -> Any:
        return x * (2.0 if tf.inside_function() else 3.0)

    tf.config.run_functions_eagerly(True)
    try:
        with pytest.raises(UnsupportedModel, match="output 0 has other values than the model's"):
            BACKEND.load(growing, told_by(rows(2, 6)))
    finally:
        tf.config.run_functions_eagerly(False)


def test_a_model_that_draws_random_numbers_is_not_taken_for_another() -> None:
    @tf.function(input_signature=[tf.TensorSpec((None, 6))])
    def noisy(x: Any) -> Any:
        return x + tf.random.normal(tf.shape(x))

    assert BACKEND.load(noisy, told_by(rows(2, 6))).output_names
