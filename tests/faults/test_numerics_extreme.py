"""Channels of zeros, of one value, of denormals, of giants, of NaN: scales stay sane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

import onnx_models
from lpot.core.errors import CalibrationError, EvaluationError

TINY = np.float32(1e-42)  # a denormal
HUGE = np.float32(3e37)


def with_weight(model: ModelProto, name: str, change: Any) -> ModelProto:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            array = numpy_helper.to_array(tensor).copy()
            change(array)
            tensor.CopyFrom(numpy_helper.from_array(array, name))
            return model
    raise KeyError(name)


def channel(value: float) -> Any:
    def change(array: np.ndarray) -> None:
        array[1] = value

    return change


def everything(value: float) -> Any:
    def change(array: np.ndarray) -> None:
        array[:] = value

    return change


def outputs(made: Any, model: ModelProto) -> tuple[np.ndarray, np.ndarray]:
    feed = onnx_models.feeds(model)[0]
    return onnx_models.run(model, feed)[0], onnx_models.run(made, feed)[0]


@pytest.mark.parametrize("approach", ["static", "dynamic"])
@pytest.mark.parametrize("value", [0.0, -3.0, -TINY, 1e-20])
@pytest.mark.parametrize("spread", [channel, everything])
@pytest.mark.parametrize(("maker", "name"), [("mlp", "w0"), ("cnn", "stem_w"), ("cnn", "head_w")])
def test_flat_weights(maker: str, name: str, spread: Any, value: float, approach: str) -> None:
    model = with_weight(getattr(onnx_models, maker)(), name, spread(value))
    made = onnx_models.build(model, approach=approach).native
    expected, found = outputs(made, model)
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= 0.1 * max(1e-6, np.abs(expected).max())


@pytest.mark.parametrize("name", ["w0", "b0"])
@pytest.mark.parametrize("value", [1e6, -1e6, 1e15])
def test_giants_in_one_channel_do_not_drown_the_others(name: str, value: float) -> None:
    """Each channel has a scale of its own; the next layer reads the giant in float."""
    net = onnx_models.Net()
    x = net.input("x", ["n", 8])
    net.weight("w0", 4, 8)
    net.weight("b0", 4, scale=0.1)
    model = net.model(net.op("Gemm", [x, "w0", "b0"], "y", name="gemm", transB=1))
    with_weight(model, name, channel(value))
    expected, found = outputs(onnx_models.build(model).native, model)
    assert np.isfinite(found).all()
    quiet = [0, 2, 3]
    assert np.allclose(found[:, quiet], expected[:, quiet], atol=0.05)
    assert np.allclose(found[:, 1], expected[:, 1], rtol=0.05)


def test_a_bias_far_larger_than_its_products() -> None:
    """bias / (scale of input * scale of weight) must not leave int32."""
    model = with_weight(onnx_models.cnn(), "head_b", everything(1e4))
    with_weight(model, "head_w", everything(1e-6))
    expected, found = outputs(onnx_models.build(model).native, model)
    assert np.allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_in_a_weight_is_told_by_the_name_of_its_tensor(tune: Any, value: float) -> None:
    model = with_weight(onnx_models.mlp(), "w1", channel(value))
    with pytest.raises((CalibrationError, EvaluationError), match=r"holds NaN|returned nan|inf"):
        tune(model, evaluate=lambda given: 1.0)


def test_nan_in_a_weight_that_is_masked_away_keeps_that_op_in_float() -> None:
    """Infinite weights whose outputs are clipped: the op says why it stays, the rest is INT8."""
    net = onnx_models.Net()
    x = net.input("x", ["n", 8])
    net.weight("w0", 8, 8)
    net.const("top", np.array([np.inf] * 8, np.float32))
    net.const("low", np.float32(-1))
    net.const("high", np.float32(1))
    net.weight("w1", 8, 4)
    hidden = net.op("Gemm", [x, "w0", "top"], name="first")
    cut = net.op("Clip", [hidden, "low", "high"], name="clip")
    model = net.model(net.op("MatMul", [cut, "w1"], name="second"))
    made = onnx_models.build(model)
    assert {key.name for key in made.recipe.low_ops if key.kind != "Clip"} == {"second"}
    expected, found = outputs(made.native, model)
    assert np.allclose(found, expected, atol=0.05)


@pytest.mark.parametrize("value", [0.0, 5.0, -5.0, TINY, 1e-30, HUGE])
def test_flat_activations(value: float) -> None:
    """Calibration data of one value only: black images, padding, a stuck sensor."""
    model = onnx_models.mlp()
    data = [np.full((4, 8), value, np.float32)] * 2
    made = onnx_models.build(model, data).native
    feed = {"x": data[0]}
    expected, found = (onnx_models.run(item, feed)[0] for item in (model, made))
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= 0.1 * max(1e-6, np.abs(expected).max())


def test_zero_is_exact_whatever_the_range() -> None:
    """Padding is zeros: a zero that is off by a fraction of a step would tint every border."""
    for low, high in ((5.0, 9.0), (-9.0, -5.0), (-0.1, 9.0)):
        net = onnx_models.Net()
        x = net.input("x", ["n", 8])
        net.weight("w", 8, 4)
        model = net.model(net.op("MatMul", [x, "w"], "y", name="matmul"))
        data = [np.random.default_rng(0).uniform(low, high, (8, 8)).astype(np.float32)]
        made = onnx_models.build(model, data).native
        zeros = onnx_models.run(made, {"x": np.zeros((2, 8), np.float32)})[0]
        assert np.array_equal(zeros, np.zeros((2, 4)))


def test_values_far_beyond_the_calibrated_range_saturate_and_stay_finite() -> None:
    made = onnx_models.build(onnx_models.cnn()).native
    for value in (1e10, -1e10, HUGE):
        feed = {"image": np.full((1, 3, 8, 8), value, np.float32)}
        assert np.isfinite(onnx_models.run(made, feed)[0]).all()


def test_attention_masks_of_infinity_do_not_spoil_ranges(tune: Any) -> None:
    model = onnx_models.transformer()
    data = onnx_models.feeds(model, count=8)
    result = tune(model, data, onnx_models.fidelity(model, data))
    assert result.met is True
    assert len(result.trials) == 1


@pytest.mark.parametrize("algorithm", ["minmax", "kl", "percentile", "mse"])
@pytest.mark.parametrize("kind", ["outlier", "spike at zero", "two values", "heavy tail"])
def test_every_algorithm_survives_every_distribution(tune: Any, algorithm: str, kind: str) -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal((64, 8)).astype(np.float32)
    if kind == "outlier":
        values[0, 0] = 1e8
    elif kind == "spike at zero":
        values[random.random(values.shape) < 0.99] = 0
    elif kind == "two values":
        values = np.where(values > 0, np.float32(1.0), np.float32(-1.0))
    else:
        values = np.exp(values * 8).astype(np.float32)
    config = {"quantization": {"model_wise": {"activation": {"algorithm": algorithm}}}}
    result = tune(calib=[values], config=config, lenient=True)
    feed = {"x": values}
    expected, found = (onnx_models.run(m, feed)[0] for m in (onnx_models.mlp(), result.path))
    assert np.isfinite(found).all()
    if kind == "two values":
        assert np.abs(found - expected).max() <= 0.1 * np.abs(expected).max()
