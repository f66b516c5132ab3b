"""The export to ONNX says what the TensorFlow model says, in the same precisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx", reason="the export needs tf2onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime as ort

from backends.tensorflow.nets import (
    Maker,
    block,
    cnn,
    graph_of,
    images,
    rows,
)
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.core.errors import UnsupportedModel
from lpot.core.repairs import Repairs
from lpot.core.space import restrict

BACKEND = TensorflowBackend()


def run(path: Path, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def optimized(path: Path) -> Counter[str]:
    """What ONNX Runtime makes of the file."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".opt.onnx"))
    options.log_severity_level = 3
    ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


@pytest.mark.parametrize(
    ("graph_def", "batches", "low"),
    [(cnn(), images(2), {"Conv": 10, "MatMul": 2}), (block(), rows(2), {"MatMul": 6})],
    ids=["cnn", "block"],
)
def test_the_exported_model_is_the_same(
    graph_def: Any, batches: list[Any], low: dict[str, int], tmp_path: Path
) -> None:
    model = BACKEND.load(graph_def)
    recipe = restrict(BACKEND.inspect(model, target="avx2"), ()).default()
    recipe = replace(recipe, repairs=Repairs(bias_correction=True))
    built = BACKEND.build(model, recipe, BACKEND.observe(model, batches, (0,))[0])
    truth, (x,) = BACKEND.run(model, batches[0])[0], batches[0]
    np.testing.assert_allclose(
        run(model.export_onnx(tmp_path / "float"), x), truth, atol=1e-4 * np.abs(truth).max()
    )
    path = built.export_onnx(tmp_path / "low.onnx")
    found, expected = run(path, x), BACKEND.run(built, batches[0])[0]
    power = float((truth**2).mean())
    assert float(((found - expected) ** 2).mean()) < 0.01 * power
    nodes = onnx.load(str(path)).graph.node
    dequantized = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    both = Counter(n.op_type for n in nodes if set(n.input[:2]) <= dequantized)
    assert {kind: both[kind] for kind in low} == low
    assert path.stat().st_size < (tmp_path / "float.onnx").stat().st_size
    assert "Gemm" not in optimized(path)  # no product that can be INT8 runs in floats


@pytest.mark.parametrize("turned", ["neg", "scaled", "plain"])
def test_erfc_is_written_as_erf(turned: str, tmp_path: Path) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 32], name="x")
        wide = make.dense(x, 64, "up")
        half = {"neg": -wide, "scaled": -wide * 0.7071, "plain": wide * 0.5}[turned]
        tf.identity(make.dense(0.5 * wide * tf.math.erfc(half), 32, "down"), name="y")

    model = BACKEND.load(graph_of(build))
    (x,) = rows(1)[0]
    found = run(model.export_onnx(tmp_path / "float"), x)
    np.testing.assert_allclose(found, BACKEND.run(model, (x,))[0], atol=1e-5)


def test_what_onnx_lacks_is_refused_by_name(tmp_path: Path) -> None:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 32], name="x")
        tf.math.lgamma(tf.abs(make.dense(x, 8)) + 1.0, name="y")

    with pytest.raises(UnsupportedModel, match=r"tf2onnx can't convert.*Lgamma"):
        BACKEND.load(graph_of(build)).export_onnx(tmp_path / "x")


def test_a_model_read_back_says_why_it_can_not_be_exported(tmp_path: Path) -> None:
    model = BACKEND.load(block())
    recipe = restrict(BACKEND.inspect(model), ()).default()
    built = BACKEND.build(model, recipe, BACKEND.observe(model, rows(1), (0,))[0])
    again = BACKEND.restore(built.save(tmp_path / "low.pb"))
    with pytest.raises(UnsupportedModel, match="quantize"):
        again.export_onnx(tmp_path / "low.onnx")


def test_the_weights_are_not_copied_for_each_pass_of_the_converter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tf2onnx import optimizer
    from tf2onnx.optimizer.const_fold_optimizer import ConstFoldOptimizer

    asked: list[bool] = []

    def watched(graph: Any, careful: bool) -> Any:
        asked.append(careful)
        return real(graph, careful)

    real = optimizer.optimize_graph
    monkeypatch.setattr(optimizer, "optimize_graph", watched)
    model, (x,) = BACKEND.load(cnn()), images(1)[0]
    truth = BACKEND.run(model, (x,))[0]
    np.testing.assert_allclose(run(model.export_onnx(tmp_path / "m"), x), truth, atol=1e-3)
    assert asked == [False]

    def fail(*_: Any) -> None:
        raise TypeError("a pass that fails")

    monkeypatch.setattr(ConstFoldOptimizer, "optimize", fail)
    np.testing.assert_allclose(run(model.export_onnx(tmp_path / "n"), x), truth, atol=1e-3)
    assert asked == [False, False, True]
