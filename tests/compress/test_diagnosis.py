"""`tuning.diagnosis` and `tuning.tensorboard` on every framework that has tensors to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from lpot.config import load

DRAW = np.random.default_rng(0)
DATA = DRAW.normal(size=(16, 8)).astype(np.float32)
WEIGHTS = [DRAW.normal(size=(8, 8)).astype(np.float32) for _ in range(2)]


def onnx_model() -> Any:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make = onnx.helper
    tensors = [onnx.numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(WEIGHTS)]
    nodes = [
        make.make_node("MatMul", ["x", "w0"], ["h"], "first"),
        make.make_node("Relu", ["h"], ["r"], "relu"),
        make.make_node("MatMul", ["r", "w1"], ["y"], "second"),
    ]
    ends = [
        make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 8]) for name in ("x", "y")
    ]
    graph = make.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)


def torch_model() -> Any:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    return net.eval()


def tensorflow_model() -> Any:
    tf = pytest.importorskip("tensorflow")
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (None, 8), "x")
        h = tf.nn.relu(tf.linalg.matmul(x, WEIGHTS[0], name="first"))
        tf.linalg.matmul(h, WEIGHTS[1], name="second")
    return graph


@pytest.mark.parametrize("make", [onnx_model, torch_model, tensorflow_model])
def test_tensors_and_events_are_kept(make: Any, tmp_path: Path) -> None:
    lpot.tune(
        make(),
        [DATA],
        lambda model: 1.0,
        0.5,
        really=True,
        config={"tuning": {"diagnosis": True, "tensorboard": True}},
        workspace=tmp_path / "w",
        measure_speed=False,
    )
    sides = []
    for name in ("fp32.npz", "low.npz"):
        with np.load(tmp_path / "w" / "inspect_saved" / name) as found:
            sides.append({key: found[key] for key in found.files})
    assert sides[0].keys() == sides[1].keys() and len(sides[0]) >= 4
    for key, exact in sides[0].items():
        error = np.abs(exact - sides[1][key]).max() / np.abs(exact).max()
        assert error < 0.1, key
    assert any(np.abs(sides[0][key] - sides[1][key]).max() > 0 for key in sides[0])
    assert list((tmp_path / "w" / "tensorboard").rglob("events.out.tfevents.*"))


def test_nothing_is_kept_unless_asked_for() -> None:
    assert load().tuning.diagnosis is False
