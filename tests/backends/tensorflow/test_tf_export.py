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
from click.testing import CliRunner

import lpot
from backends.tensorflow.nets import (
    Maker,
    block,
    cnn,
    graph_of,
    images,
    iterator_graph,
    rows,
    write_lines,
)
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.cli import cli
from lpot.core.backend import ModelSpec
from lpot.core.errors import UnsupportedModel
from lpot.core.repairs import Repairs
from lpot.core.space import restrict
from lpot.jobs.recover import exportable

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
    with pytest.raises(UnsupportedModel, match="give the workspace of its tuning"):
        exportable(tmp_path / "low.pb")


def test_a_workspace_is_exported_from_the_model_that_was_tuned(tmp_path: Path) -> None:
    source = tmp_path / "net.pb"
    source.write_bytes(block().SerializeToString())
    given = rows(1)[0]
    options: dict[str, Any] = {"workspace": tmp_path / "ws", "measure_speed": False}
    result = lpot.tune(source, [given], lambda model: 1.0, **options)
    straight = result.model.export(tmp_path / "straight.onnx")
    again = exportable(tmp_path / "ws").export(tmp_path / "again.onnx")
    assert np.array_equal(run(again, given[0]), run(straight, given[0]))
    source.rename(tmp_path / "moved.pb")
    with pytest.raises(UnsupportedModel, match=r"net\.pb does not exist: give its path.*--module"):
        exportable(tmp_path / "ws")
    command = ["export", str(tmp_path / "ws"), str(tmp_path / "moved.onnx")]
    made = CliRunner().invoke(cli, [*command, "--module", str(tmp_path / "moved.pb")])
    assert made.exit_code == 0, made.output
    assert np.array_equal(run(tmp_path / "moved.onnx", given[0]), run(straight, given[0]))


def test_a_graph_that_reads_its_data_itself_gets_inputs(tmp_path: Path) -> None:
    # The handle that such a graph ends in, too, is no result.
    assert BACKEND.load(iterator_graph()).output_names == ("unstack", "unstack:1", "label")
    model = BACKEND.load(iterator_graph(), ModelSpec(outputs=("IteratorGetNext:1", "unstack:0")))
    feeds = {"input_file": str(write_lines(tmp_path / "rows.txt")), "batch_size": 4}
    recipe = restrict(BACKEND.inspect(model), ()).default()
    low = BACKEND.build(model, recipe, BACKEND.observe(model, [feeds], (0,))[0])
    expected = BACKEND.run(low, feeds)
    session = ort.InferenceSession(str(low.export_onnx(tmp_path / "low")))
    assert [item.name for item in session.get_inputs()] == [
        "IteratorGetNext_0:0",
        "IteratorGetNext_1:0",
    ]
    lines = (tmp_path / "rows.txt").read_text().splitlines()[:4]
    values = np.array([line.split(",") for line in lines], np.float32)
    ids = values[:, 0].astype(np.int32)
    found = session.run(None, {"IteratorGetNext_0:0": values, "IteratorGetNext_1:0": ids})
    np.testing.assert_array_equal(found[0], ids)  # data handed on as they were read
    assert np.abs(found[1] - expected[1]).max() < 0.05 * np.abs(expected[1]).max()


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
