"""LSTM in INT8, by the runtime's own op."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend, recurrent
from lpot.backends.onnx.recurrent import lstm_weight
from zoo import onnx_odd

DIRECTIONS = ["forward", "reverse", "bidirectional"]


def lstm(direction: str, full: bool) -> onnx.ModelProto:
    """`full`: with lengths, first states and peepholes."""
    net = onnx_models.Net()
    ways = 2 if direction == "bidirectional" else 1
    net.input("x", [6, 3, 8])
    net.weight("w", ways, 64, 8, scale=0.4)
    net.weight("r", ways, 64, 16, scale=0.3)
    net.weight("b", ways, 128, scale=0.1)
    inputs = ["x", "w", "r", "b"]
    if full:
        net.const("lengths", np.array([6, 4, 2], np.int32))
        net.weight("h", ways, 3, 16, scale=0.5)
        net.weight("c", ways, 3, 16, scale=0.5)
        net.weight("p", ways, 48, scale=0.2)
        inputs += ["lengths", "h", "c", "p"]
    node = helper.make_node(
        "LSTM", inputs, ["y", "", "last"], name="lstm", hidden_size=16, direction=direction
    )
    net.nodes.append(node)
    return net.model("y", "last")


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lstm_in_int8_stays_close(direction: str, full: bool, tmp_path: Path) -> None:
    model = lstm(direction, full)
    data = onnx_odd.feeds(model)
    result = lpot.tune(model, data, workspace=tmp_path, measure_speed=False)
    assert result.precisions == {"int8": 1}
    made = onnx.load(str(result.path))
    assert [node.op_type for node in made.graph.node] == ["DynamicQuantizeLSTM"]
    large = [tensor for tensor in made.graph.initializer if len(tensor.dims) == 3]
    kinds = {t.name: t.data_type for t in large if t.name not in ("h", "c")}
    assert set(kinds.values()) == {TensorProto.INT8}
    for one, other in zip(
        onnx_models.run(model, data[0]), onnx_models.run(result.path, data[0]), strict=True
    ):
        assert np.square(one - other).sum() < 5e-3 * np.square(one).sum()


def test_dynamic_too_and_without_data(tmp_path: Path) -> None:
    model = lstm("forward", False)
    result = lpot.tune(model, approach="dynamic", workspace=tmp_path, measure_speed=False)
    assert result.precisions == {"int8": 1}


def test_an_lstm_that_is_not_to_be_had_says_why() -> None:
    model = lstm("forward", False)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 64, 8]))
    del model.graph.initializer[0]
    backend = OnnxBackend()
    (info,) = backend.inspect(backend.load(model)).ops.values()
    assert "not constants" in info.reason


def test_a_runtime_without_the_op_leaves_lstm_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op is ONNX Runtime's own, and no version promises it."""
    assert recurrent.has_kernel()
    monkeypatch.setattr(recurrent, "KIND", "GoneLSTM")
    recurrent.has_kernel.cache_clear()
    backend = OnnxBackend()
    (info,) = backend.inspect(backend.load(lstm("forward", False))).ops.values()
    assert "has no GoneLSTM" in info.reason and not info.can_be_low
    monkeypatch.undo()
    recurrent.has_kernel.cache_clear()


@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_are_turned_and_scaled(per_channel: bool) -> None:
    weight = np.random.default_rng(0).standard_normal((2, 12, 5)).astype(np.float32)
    data, scale = lstm_weight(weight, per_channel, 8)
    assert data.shape == (2, 5, 12) and scale.shape == ((2, 12) if per_channel else (2,))
    wide = scale[:, None, :] if per_channel else scale[:, None, None]
    assert np.abs(data * wide - weight.transpose(0, 2, 1)).max() <= scale.max() * 0.51


@pytest.mark.parametrize(("target", "bits"), [("avx2", 7), ("vnni", 8)])
def test_weights_have_the_bits_of_the_target(target: str, bits: int) -> None:
    """On AVX2 the kernel overflows with 8: the states then err by a multiple of the rounding."""
    backend = OnnxBackend()
    model = backend.load(lstm("forward", False))
    (info,) = backend.inspect(model, "static", target).low()  # type: ignore[arg-type]
    low = [option for option in info.choices if not option.is_float]
    assert {option.weight.bits for option in low if option.weight is not None} == {bits}
    assert {option.mode for option in low} == {"dynamic"}
