"""Ops in bfloat16: offered where the CPU has it, right wherever it runs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import block, cnn, images, rows
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.abilities import BF16
from lpot.backends.tensorflow.runtime import GraphDef, tf
from lpot.core.cpu import Cpu
from lpot.core.recipe import FP32, Recipe
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
CASES = [(cnn(), images(2)), (block(), rows(2))]


@pytest.mark.parametrize(("graph_def", "batches"), CASES, ids=["cnn", "block"])
def test_bfloat16_is_near_the_truth_and_half_the_size(
    graph_def: GraphDef, batches: list[tuple[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_BF16", "1")
    model = BACKEND.load(graph_def)
    capability = BACKEND.inspect(model)
    keys = [key for key, info in capability.ops.items() if BF16 in info.choices]
    assert len(keys) >= 6
    built = BACKEND.build(model, Recipe(dict.fromkeys(keys, BF16)))
    assert set(built.precisions.values()) == {"bf16"}
    truth, found = BACKEND.run(model, batches[0])[0], BACKEND.run(built, batches[0])[0]
    assert 0 < np.abs(found - truth).max() < 0.05 * np.abs(truth).max()
    assert built.nbytes < 0.75 * model.nbytes
    halves = [n for n in built.net.nodes.values() if n.op in ("Conv2D", "MatMul")]
    assert {node.attr["T"].type for node in halves} >= {tf.bfloat16.as_datatype_enum}


def test_bfloat16_and_int8_live_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_BF16", "1")
    model = BACKEND.load(cnn())
    recipe = restrict(BACKEND.inspect(model), ()).default()
    leaders = [key for key, config in recipe.ops.items() if config.weight is not None]
    mixed = recipe.replace({**dict.fromkeys(leaders[::3], BF16), leaders[1]: FP32})
    observations = BACKEND.observe(model, images(2), (0,))[0]
    built = BACKEND.build(model, mixed, observations)
    assert {"bf16", "int8", "fp32"} <= set(built.precisions.values())
    truth, found = BACKEND.run(model, images(1)[0])[0], BACKEND.run(built, images(1)[0])[0]
    assert np.abs(found - truth).max() < 0.3 * np.abs(truth).max()


def test_it_is_offered_only_where_the_cpu_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_BF16", raising=False)
    model = BACKEND.load(cnn())
    for features in ((), ("avx512_bf16",)):
        cpu = Cpu("x", "x86_64", features, 2, 2, 0, 0)
        monkeypatch.setattr("lpot.backends.tensorflow.abilities.this_cpu", lambda cpu=cpu: cpu)
        offered = any(BF16 in info.choices for info in BACKEND.inspect(model).ops.values())
        assert offered == bool(features)


def test_batches_in_bfloat16_are_taken_by_a_model_of_them() -> None:
    weight = tf.constant(np.random.default_rng(0).normal(size=(16, 8)), tf.bfloat16)

    @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.bfloat16, name="x")])
    def call(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x @ weight)

    x = tf.cast(np.random.default_rng(1).normal(size=(4, 16)), tf.bfloat16)
    model = BACKEND.load(call)
    found = BACKEND.run(model, (x.numpy(),))[0].astype(np.float32)
    np.testing.assert_array_equal(found, BACKEND.run(model, (tf.cast(x, tf.float32).numpy(),))[0])
    np.testing.assert_array_equal(found, call(x).numpy().astype(np.float32))
