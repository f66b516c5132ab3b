"""TensorFlow promises none of oneDNN's ops: a version without them is told, and nothing breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import lpot
from backends.tensorflow.nets import Maker, block, cnn, graph_of, images, rows
from lpot.backends.tensorflow import TensorflowBackend, saturation
from lpot.backends.tensorflow.passes import fuse_norms
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.core.space import restrict

BACKEND = TensorflowBackend()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """What was found out about the real ops must not answer for those that are gone."""
    known = (saturation.worst_error, saturation.saturates, saturation.why_no_kernel)
    for each in (*known, fuse_norms.has_fused_norm):
        each.cache_clear()
    yield
    for each in (*known, fuse_norms.has_fused_norm):
        each.cache_clear()


@pytest.mark.parametrize("kind", [*saturation.FUSED])
def test_ops_without_their_kernel_stay_in_float_and_the_others_do_not(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = f"_Gone{kind}"
    monkeypatch.setitem(saturation.FUSED, kind, gone)
    model = BACKEND.load(cnn())
    ops = BACKEND.inspect(model).ops
    hidden = [info for key, info in ops.items() if key.kind == kind]
    assert hidden and all(gone in info.reason and not info.can_be_low for info in hidden)
    rest = [info for key, info in ops.items() if key.kind in saturation.FUSED and key.kind != kind]
    assert rest and all(info.can_be_low for info in rest)
    recipe = restrict(BACKEND.inspect(model), ()).default()
    built = BACKEND.build(model, recipe, BACKEND.observe(model, images(2), (0,))[0])
    truth, found = (BACKEND.run(each, images(1)[0])[0] for each in (model, built))
    assert np.abs(found - truth).max() < 0.2 * np.abs(truth).max()
    names = {node.op for node in built.net.nodes.values()}
    assert names & {*saturation.FUSED.values()}, "the others are in INT8"


def test_without_any_of_them_a_tuning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in saturation.FUSED:
        monkeypatch.setitem(saturation.FUSED, kind, f"_Gone{kind}")
    place = {"workspace": tmp_path, "measure_speed": False, "progress": "plain"}
    result = lpot.tune(block(), rows(2), **place)
    assert result.precisions.get("int8", 0) == 0
    assert "has no _GoneMatMul, its INT8 kernel" in capsys.readouterr().err


def test_norms_stay_as_they_are_without_the_fused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 32], name="x")
        mean, variance = tf.nn.moments(x, [1], keepdims=True)
        scaled = (x - mean) * tf.math.rsqrt(variance + 1e-5) * make.vector(32, around=1.0)
        tf.identity(make.dense(scaled + make.vector(32), 16, "out"), name="y")

    def ops() -> set[str]:
        model = BACKEND.load(graph_of(build))
        recipe = restrict(BACKEND.inspect(model), ()).default()
        built = BACKEND.build(model, recipe, BACKEND.observe(model, rows(2), (0,))[0])
        BACKEND.run(built, rows(1)[0])
        return {node.op for node in built.net.nodes.values()}

    with_it = ops()
    monkeypatch.setattr(fuse_norms, "FUSED_NORM", "_GoneLayerNorm")
    fuse_norms.has_fused_norm.cache_clear()
    without = ops()
    assert "_MklLayerNorm" in with_it and "_MklLayerNorm" not in without
    assert "_QuantizedMatMul" in without
