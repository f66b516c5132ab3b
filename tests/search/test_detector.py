"""SSDLite on COCO without a blacklist: the search finds by itself what must stay in FP32."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("pycocotools")
pytest.importorskip("PIL")

from backends.tensorflow.test_tf_detectors import COCO, DATA, OUTPUTS, Pictures, annotations, image
from lpot.core.results.result import Result
from lpot.jobs.tune.api import tune
from lpot.metric.detection import CocoMAP

NET = DATA / "ssdlite_mobilenet_v2_coco" / "frozen_inference_graph.pb"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (COCO.is_dir() and NET.is_file()), reason="LPOT_DATA has no detector"),
]
COMPUTE = ("Conv2D", "DepthwiseConv2dNative", "MatMul")


def search(folder: Path, goal: float, quantization: dict[str, Any]) -> Result:
    truth = annotations(folder, None)
    return tune(
        NET,
        [(image(path), 0) for path in sorted((COCO / "train2017_calib").iterdir())],
        config={
            "model": {"framework": "tensorflow", "outputs": list(OUTPUTS)},
            "quantization": quantization,
        },
        eval_loader=Pictures(truth),
        metric=CocoMAP(anno_path=truth),
        goal=goal,
        strategy="basic",
        workspace=folder / "run",
        measure_speed=False,
    )


def test_nothing_has_to_stay(tmp_path: Path) -> None:
    result = search(tmp_path, 0.003, {})
    assert result.met and result.evaluations == 2 and result.float_ops == ()


def test_with_one_scale_for_a_weight_the_depthwise_ones_stay(tmp_path: Path) -> None:
    """Then the channels of depthwise convolutions are too unlike each other: all low misses."""
    whole = {"model_wise": {"weight": {"granularity": "per_tensor"}}}
    result = search(tmp_path, 0.01, whole)
    ops = sum(key.kind in COMPUTE for key in result.recipe.ops)
    assert result.met and not result.trials[0].met
    assert result.evaluations <= 2 + math.ceil(math.log2(ops))
    assert 0 < len(result.float_ops) < ops / 2
    kinds = {key.name: key.kind for key in result.recipe.ops}
    depthwise = [name for name in result.float_ops if "Depthwise" in kinds[name]]
    others = sum("Depthwise" in kind for kind in kinds.values()) / ops
    assert len(depthwise) / len(result.float_ops) > others  # more than their share of the net
