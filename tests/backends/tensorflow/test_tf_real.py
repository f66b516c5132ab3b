"""Real models on real data: accuracy held by INT8, without any op going back to float."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.core.recipe import Recipe
from lpot.core.space import restrict

DATA = Path(os.environ.get("LPOT_DATA", Path(__file__).parents[4] / "shared" / "data"))
BACKEND = TensorflowBackend()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="LPOT_DATA has no models and data"),
]


def quantized(model: TensorflowModel, batches: list[Any]) -> TensorflowModel:
    recipe = replace(restrict(BACKEND.inspect(model), ()).default(), repairs=BACKEND.repairs)
    return BACKEND.build(model, recipe, BACKEND.observe(model, batches, (0,))[0])


@pytest.mark.parametrize(
    ("file", "normalised", "expected"),
    [
        ("race/resnet20.pb", True, 0.9165),
        ("race/resnet20_hard.pb", True, 0.9165),
        ("cifar10_keras_cnn/cnn_model.h5", False, 0.8085),
    ],
)
def test_cifar(file: str, normalised: bool, expected: float) -> None:
    with np.load(DATA / "cifar10_keras_cnn" / "cifar10_test2000.npz") as arrays:
        x, labels = arrays["x"].astype(np.float32), arrays["y"].reshape(-1)
    if normalised:
        mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        x = ((x - 255 * mean) / (255 * deviation)).astype(np.float32)

    def accuracy(model: TensorflowModel) -> float:
        found = [BACKEND.run(model, (x[i : i + 200],))[0] for i in range(0, len(x), 200)]
        return float((np.concatenate(found).argmax(-1) == labels).mean())

    model = BACKEND.load(DATA / file)
    assert accuracy(model) == pytest.approx(expected, abs=0.001)
    built = quantized(model, [(x[i : i + 50],) for i in range(0, 200, 50)])
    assert "fp32" not in {p for k, p in built.precisions.items() if "MaxPool" not in k.kind}
    assert accuracy(built) > expected * 0.99
    assert built.nbytes < 0.4 * model.nbytes


@pytest.mark.parametrize(
    ("folder", "categories", "expected"),
    [
        ("ssdlite_mobilenet_v2_coco", None, 0.299),
        ("pedestrian_ssdlite_tf1", [1], 0.210),
    ],
)
def test_detectors(folder: str, categories: list[int] | None, expected: float) -> None:
    pytest.importorskip("pycocotools")
    from PIL import Image

    slice_ = DATA / "coco2017-slice"

    def image(path: Path) -> np.ndarray:
        return np.asarray(Image.open(path).convert("RGB"))[None]

    calibration = [(image(path),) for path in sorted((slice_ / "train2017_calib").iterdir())]
    model = BACKEND.load(DATA / folder / "frozen_inference_graph.pb")
    assert average_precision(model, slice_, image, categories) == pytest.approx(expected, abs=0.001)
    built = quantized(model, calibration)
    kinds = [node.op for node in built.net.nodes.values()]
    assert kinds.count("_FusedQuantizedConv2D") == 55
    assert kinds.count("_FusedQuantizedDepthwiseConv2D") == 33
    assert kinds.count("QuantizeV2") == 1  # 8 bits all the way, residual sums included
    assert average_precision(built, slice_, image, categories) > expected * 0.96


def average_precision(
    model: TensorflowModel, folder: Path, image: Any, categories: list[int] | None
) -> float:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    found = []
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(folder / "annotations" / "instances_val2017.json"))
        for key, info in truth.imgs.items():
            pixels = image(folder / "val2017" / info["file_name"])
            high, wide = pixels.shape[1:3]
            outputs = BACKEND.run(model, (pixels,))
            named = dict(zip(model.output_names, outputs, strict=True))
            for box, score, kind in zip(
                named["detection_boxes"][0],
                named["detection_scores"][0],
                named["detection_classes"][0],
                strict=True,
            ):
                top, left, bottom, right = (float(v) for v in box * [high, wide, high, wide])
                area = [left, top, right - left, bottom - top]
                one = {"image_id": key, "category_id": int(kind), "bbox": area}
                found.append({**one, "score": float(score)})
        judge = COCOeval(truth, truth.loadRes(found), "bbox")
        if categories is not None:
            judge.params.catIds = categories
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return float(judge.stats[0])


def test_a_recipe_in_history_rebuilds_the_same_model() -> None:
    model = BACKEND.load(DATA / "race" / "resnet20.pb")
    x = np.random.default_rng(0).normal(size=(8, 32, 32, 3)).astype(np.float32)
    observations = BACKEND.observe(model, [(x,)], (0,))[0]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    again = Recipe.from_json(recipe.to_json())
    one, other = (BACKEND.build(model, r, observations).fingerprint() for r in (recipe, again))
    assert one == other
