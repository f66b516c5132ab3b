"""The demo's assets are there, small, right, and as hard for INT8 as the demo says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpot.core.numerics.rounding import TensorStats, affine, dequantize, quantize, quantize_weight
from lpot.demo import DemoData, demo_data, demo_model_path

FP32_ACCURACY = 0.9925


@pytest.fixture(scope="module")
def data() -> DemoData:
    return demo_data()


@pytest.fixture(scope="module")
def model() -> Any:
    onnx = pytest.importorskip("onnx")
    return onnx.load(demo_model_path())


@pytest.fixture(scope="module")
def weights(model: Any) -> dict[str, np.ndarray]:
    from onnx import numpy_helper

    return {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}


def run(model: Any, images: np.ndarray, output: str) -> np.ndarray:
    ort = pytest.importorskip("onnxruntime")
    from onnx import helper

    wired = type(model)()
    wired.CopyFrom(model)
    if output != "logits":
        wired.graph.output.append(helper.make_empty_tensor_value_info(output))
    session = ort.InferenceSession(wired.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run([output], {"image": images})[0]


def test_assets_are_small() -> None:
    assert demo_model_path().stat().st_size <= 1.5 * 2**20
    assert demo_model_path().with_suffix(".npz").stat().st_size <= 130 * 1024


def test_data_shapes(data: DemoData) -> None:
    assert data.calib_images.shape == (1000, 1, 8, 8) and data.images.shape == (797, 1, 8, 8)
    assert data.calib_labels.shape == (1000,) and data.labels.shape == (797,)
    assert data.images.dtype == np.float32 and data.labels.dtype == np.int64
    assert data.images.min() == 0.0 and data.images.max() == 1.0
    assert set(data.labels.tolist()) == set(range(10))


def test_data_are_the_real_digits(data: DemoData) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    stored = np.concatenate([data.calib_images, data.images])[:, 0] * 16
    np.testing.assert_array_equal(stored, digits.images)
    labels = np.concatenate([data.calib_labels, data.labels])
    np.testing.assert_array_equal(labels, digits.target)


def test_model_is_named_and_of_any_batch(model: Any) -> None:
    assert model.opset_import[0].version >= 17
    names = [node.name for node in model.graph.node]
    assert all(names) and len(set(names)) == len(names)
    assert {"conv1", "conv2", "conv3", "conv4", "fc1", "mix", "fc2"} <= set(names)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.parametrize("batch", [1, 797])
def test_fp32_accuracy(model: Any, data: DemoData, batch: int) -> None:
    parts = range(0, 797 if batch > 1 else 20, batch)
    logits = [run(model, data.images[at : at + batch], "logits") for at in parts]
    labels = data.labels[: len(parts) * batch]
    accuracy = float(np.mean(np.concatenate(logits).argmax(1) == labels))
    assert accuracy >= (FP32_ACCURACY - 0.002 if batch > 1 else 0.9)


def test_mix_is_exact_in_its_weights(weights: dict[str, np.ndarray]) -> None:
    """So that the loss is the activation's, and no care for weights can mend it."""
    weight = weights["mix.weight"]
    q, params = quantize_weight(weight, axis=0)
    np.testing.assert_allclose(dequantize(q, params), weight, rtol=1e-6)
    assert (q.astype(int).sum(axis=1) == 0).all()


@pytest.mark.parametrize("algorithm", ["minmax", "percentile", "kl", "mse"])
def test_eight_bits_before_mix_miss_the_bar(
    model: Any, data: DemoData, weights: dict[str, np.ndarray], algorithm: str
) -> None:
    stats = TensorStats.empty()
    stats.update(run(model, data.calib_images, "referred"))
    params = affine(*stats.range(algorithm))
    referred = run(model, data.images, "referred")
    rounded = dequantize(quantize(referred, params), params)

    def accuracy(features: np.ndarray) -> float:
        mixed = features @ weights["mix.weight"].T + weights["mix.bias"]
        logits = np.maximum(mixed, 0) @ weights["fc2.weight"].T + weights["fc2.bias"]
        return float(np.mean(logits.argmax(1) == data.labels))

    assert accuracy(referred) >= FP32_ACCURACY - 0.002
    assert accuracy(rounded) <= 0.95
