"""Two real detectors tuned by COCO mAP: the bar, the interval of the drop, both oneDNN settings."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("pycocotools")
pytest.importorskip("PIL")

import lpot
from lpot.core.results.result import Result
from lpot.metric.detection import CocoMAP

logger = logging.getLogger(__name__)

DATA = Path(os.environ.get("LPOT_DATA", Path(__file__).parents[4] / "shared" / "data"))
COCO = DATA / "coco2017-slice"
OUTPUTS = ("num_detections", "detection_boxes", "detection_scores", "detection_classes")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not COCO.is_dir(), reason="LPOT_DATA has no models and data"),
]
CHILD = """
import sys, numpy as np
from PIL import Image
import lpot
model = lpot.load(sys.argv[1])
found = {}
for file in sys.argv[3:]:
    pixels = np.asarray(Image.open(file).convert("RGB"))[None]
    for name, value in zip(model.output_names, model.backend.run(model, (pixels,))):
        found[f"{file}|{name}"] = value
np.savez(sys.argv[2], **found)
"""


def image(path: Path) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"))[None]


class Pictures:
    """Images one by one with their COCO id."""

    batch_size = 1

    def __init__(self, annotations: Path) -> None:
        raw = json.loads(annotations.read_text())
        self.files = {one["id"]: one["file_name"] for one in raw["images"]}

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for key, name in self.files.items():
            yield image(COCO / "val2017" / name), np.array([key])


def annotations(folder: Path, category: int | None) -> Path:
    """The truth, or that of one category alone."""
    whole = COCO / "annotations" / "instances_val2017.json"
    if category is None:
        return whole
    raw = json.loads(whole.read_text())
    raw["annotations"] = [one for one in raw["annotations"] if one["category_id"] == category]
    raw["categories"] = [one for one in raw["categories"] if one["id"] == category]
    path = folder / "one.json"
    path.write_text(json.dumps(raw))
    return path


def tuned(name: str, folder: Path, category: int | None) -> Result:
    truth = annotations(folder, category)
    calibration = [image(path) for path in sorted((COCO / "train2017_calib").iterdir())]
    return lpot.tune(
        DATA / name / "frozen_inference_graph.pb",
        [(pixels, 0) for pixels in calibration],
        config={"model": {"framework": "tensorflow", "outputs": list(OUTPUTS)}},
        eval_loader=Pictures(truth),
        metric=CocoMAP(anno_path=truth),
        goal=0.01,
        max_trials=8,
        workspace=folder / "run",
    )


@pytest.mark.parametrize(
    ("name", "category", "expected"),
    [("ssdlite_mobilenet_v2_coco", None, 0.299), ("pedestrian_ssdlite_tf1", 1, 0.210)],
)
def test_a_detector_holds_the_bar_with_its_interval(
    tmp_path: Path, name: str, category: int | None, expected: float
) -> None:
    result = tuned(name, tmp_path, category)
    assert result.baseline is not None and result.interval is not None
    logger.warning(
        "%s: FP32 %.4f, INT8 %.4f, drop between %.2f and %.2f %%, %d evaluations, %d op(s) in "
        "FP32, %s times as fast",
        name,
        result.baseline.accuracy,
        result.accuracy,
        100 * result.interval.low,
        100 * result.interval.high,
        result.evaluations,
        len(result.float_ops),
        result.speed,
    )
    assert result.baseline.accuracy == pytest.approx(expected, abs=0.001)
    assert result.met
    drop = result.goal.drop(result.accuracy, result.baseline.accuracy)
    assert result.interval.low <= drop <= result.interval.high
    assert result.interval.samples == 164
    assert any("paired resamplings" in note for note in result.notes)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["interval"]["low"] < 0.01
    if category is None:
        _same_with_and_without_onednn(result.path, tmp_path)


def _same_with_and_without_onednn(model: Path | None, folder: Path) -> None:
    """The same boxes; scores differ by a step of 8 bits where a rounding fell the other way."""
    files = sorted(map(str, (COCO / "val2017").iterdir()))[:12]
    found = []
    for switch in ("0", "1"):
        path = folder / f"found{switch}.npz"
        subprocess.run(
            [sys.executable, "-c", CHILD, str(model), str(path), *files],
            env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": switch},
            check=True,
            capture_output=True,
        )
        with np.load(path) as arrays:
            found.append({key: arrays[key] for key in arrays.files})
    off, on = found
    for file in files:
        sure = {}
        for side, arrays in (("off", off), ("on", on)):
            named = {name: arrays[f"{file}|{name}"][0] for name in OUTPUTS[1:]}
            chosen = named["detection_scores"] > 0.4
            order = np.lexsort(named["detection_boxes"][chosen].round(2).T)
            sure[side] = {name: value[chosen][order] for name, value in named.items()}
        one, other = sure["off"], sure["on"]
        assert len(one["detection_boxes"]) == len(other["detection_boxes"]), file
        for name, slack in (("detection_boxes", 0.02), ("detection_scores", 0.03)):
            np.testing.assert_allclose(one[name], other[name], atol=slack, err_msg=file)
        np.testing.assert_array_equal(one["detection_classes"], other["detection_classes"])
