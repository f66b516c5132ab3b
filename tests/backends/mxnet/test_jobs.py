"""Whole jobs: digits with Gluon, the tutorial's yaml, faces, another interpreter."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet")

import mxnet as mx
from mxnet.gluon import nn

import lpot
from backends.mxnet.nets import Residual
from lpot.backends.mxnet import MxnetBackend
from lpot.demo import DemoData, demo_data

DATA = Path(os.environ.get("LPOT_DATA", Path(__file__).parents[4] / "shared" / "data"))
FACES = DATA / "mobilefacenet_mxnet"
COCO = DATA / "coco2017-slice"

TUTORIAL = """
model:
  name: digits
  framework: mxnet
quantization:
  calibration:
    sampling_size: 100, 200
  model_wise:
    weight:
      granularity: per_channel
    activation:
      algorithm: minmax
  op_wise: {
    'digits_dense0_fwd': {
      'activation': {'dtype': ['fp32']},
    },
  }
evaluation:
  accuracy:
    metric:
      topk: 1
tuning:
  accuracy_criterion:
    relative: 0.01
  exit_policy:
    timeout: 0
  random_seed: 9527
"""


def trained(data: DemoData, width: int, epochs: int) -> nn.HybridSequential:
    mx.random.seed(3)
    np.random.seed(3)  # Gluon's shuffling
    net = nn.HybridSequential(prefix="digits_")
    with net.name_scope():
        net.add(nn.Conv2D(width, 3, padding=1, use_bias=False), nn.BatchNorm())
        net.add(nn.Activation("relu"), Residual(width), Residual(2 * width, shortcut=True))
        net.add(nn.MaxPool2D(2), Residual(2 * width), nn.GlobalAvgPool2D(), nn.Flatten())
        net.add(nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3})
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    pictures = mx.gluon.data.ArrayDataset(data.calib_images, data.calib_labels.astype(np.float32))
    for _ in range(epochs):
        for batch, labels in mx.gluon.data.DataLoader(pictures, batch_size=50, shuffle=True):
            with mx.autograd.record():
                value = loss(net(batch), labels)
            value.backward()
            trainer.step(len(batch))
    return net


@pytest.fixture(scope="module")
def digits() -> DemoData:
    return demo_data()


@pytest.fixture(scope="module")
def net(digits: DemoData) -> nn.HybridSequential:
    return trained(digits, width=16, epochs=5)


def loader(images: np.ndarray, labels: np.ndarray) -> Any:
    return mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(images, labels), batch_size=50)


def accuracy_on(data: DemoData) -> Any:
    def accuracy(net: Any) -> float:
        return float((net(mx.nd.array(data.images)).asnumpy().argmax(1) == data.labels).mean())

    return accuracy


def test_digits_hold_the_bar(net: Any, digits: DemoData, tmp_path: Path) -> None:
    result = lpot.tune(
        net,
        loader(digits.calib_images[:200], digits.calib_labels[:200]),
        accuracy_on(digits),
        goal=0.01,
        framework="mxnet",
        workspace=tmp_path,
        measure_speed=False,
    )
    assert result.met
    assert result.baseline.accuracy > 0.9
    assert result.accuracy >= 0.99 * result.baseline.accuracy
    assert isinstance(result.model.native, mx.gluon.SymbolBlock)
    again = lpot.load(result.path)
    for one, other in zip(result.model(digits.images[:9]), again(digits.images[:9]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_tutorials_yaml_works(net: Any, digits: DemoData, tmp_path: Path) -> None:
    conf = tmp_path / "conf.yaml"
    conf.write_text(f"{TUTORIAL}  workspace:\n    path: {tmp_path / 'workspace'}\n")
    quantizer = lpot.Quantization(str(conf))
    quantizer.measure_speed = False
    low = quantizer(
        net,
        q_dataloader=loader(digits.calib_images[:200], digits.calib_labels[:200]),
        eval_dataloader=loader(digits.images, digits.labels),
    )
    result = quantizer.result
    assert result is not None and result.met
    assert isinstance(low, mx.gluon.SymbolBlock)
    score = accuracy_on(digits)
    assert result.accuracy == pytest.approx(score(low))
    assert result.baseline.accuracy == pytest.approx(score(net))
    precisions = {key.name: word for key, word in result.model.precisions.items()}
    assert "digits_dense0_fwd" not in precisions
    assert "int8" in precisions.values()


def test_a_score_may_be_an_mxnet_scalar(net: Any, digits: DemoData, tmp_path: Path) -> None:
    score = accuracy_on(digits)
    result = lpot.tune(
        net,
        [digits.calib_images[:50]],
        lambda low: mx.nd.array([score(low)]),
        goal=0.01,
        framework="mxnet",
        workspace=tmp_path,
        measure_speed=False,
    )
    assert result.met


@pytest.mark.slow
def test_digits_are_measured_against_fp32(
    digits: DemoData, tmp_path: Path, record_property: Any
) -> None:
    result = lpot.tune(
        trained(digits, width=64, epochs=6),
        loader(digits.calib_images[:200], digits.calib_labels[:200]),
        accuracy_on(digits),
        goal=0.01,
        framework="mxnet",
        workspace=tmp_path,
    )
    assert result.met
    assert result.speed is not None
    record_property("speed", result.speed)


# -- faces -----------------------------------------------------------------------------------------


def heads(count: int) -> np.ndarray:
    """Two views each of the upper ends of large people: [n, 2, 3, 112, 112]."""
    raw = json.loads((COCO / "annotations" / "instances_val2017.json").read_text())
    people = {item["id"] for item in raw["categories"] if item["name"] == "person"}
    names = {item["id"]: item["file_name"] for item in raw["images"]}
    found = []
    for item in raw["annotations"]:
        x, y, width, height = item["bbox"]
        if item["category_id"] in people and width > 70 and height > 140 and len(found) < count:
            picture = mx.image.imdecode((COCO / "val2017" / names[item["image_id"]]).read_bytes())
            side = min(width, height / 2.5)
            views = []
            for shift, zoom in ((0.0, 1.0), (0.06, 0.92)):
                left = int(max(0, x + width / 2 - side * zoom / 2 + shift * side))
                top, size = int(y), int(side * zoom)
                part = picture[top : top + size, left : left + size]
                views.append(mx.image.imresize(part, 112, 112).asnumpy().transpose(2, 0, 1))
            found.append(np.stack(views))
    return np.stack(found).astype(np.float32)


def cosines(native: Any, pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the two views of each head, and of every two heads."""
    symbol, args, auxs = native
    vectors = []
    for view in (0, 1):
        feeds = {**args, "data": mx.nd.array(pictures[:, view])}
        executor = symbol.bind(mx.cpu(), feeds, aux_states=auxs, grad_req="null")
        vector = executor.forward(is_train=False)[0].asnumpy()
        vectors.append(vector / np.linalg.norm(vector, axis=1, keepdims=True))
    left, right = vectors
    return (left * right).sum(1), (left @ left.T)[np.triu_indices(len(left), 1)]


@pytest.mark.slow
@pytest.mark.skipif(
    not (FACES.is_dir() and COCO.is_dir()), reason="LPOT_DATA has no mobilefacenet_mxnet"
)
def test_faces_keep_their_cosines(tmp_path: Path) -> None:
    pictures = heads(64)
    given = MxnetBackend().load(FACES / "model")
    same, other = cosines(given.native, pictures[32:])

    def agreement(native: Any) -> float:
        found = cosines(native, pictures[32:])
        return 1 - max(np.abs(found[0] - same).mean(), np.abs(found[1] - other).mean())

    result = lpot.tune(
        str(FACES / "model-symbol.json"),
        [pictures[start : start + 8, 0] for start in range(0, 32, 8)],
        agreement,
        goal=0.01,
        framework="mxnet",
        workspace=tmp_path,
        measure_speed=False,
    )
    assert result.met
    assert "int8" in result.precisions
    found = cosines(result.model.native, pictures[32:])
    assert abs(found[0].mean() - same.mean()) < 0.01
    assert abs(found[1].mean() - other.mean()) < 0.01
