"""COCO's average precision of boxes or masks, with the truth taken from the TFRecord itself."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pycocotools import mask as runs
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from lpot.data.record import RecordFile, parse_example


class CocoScore:
    """Collects detections image by image; `result()` is AP at IoU 0.50:0.95.

    `categories` are the class numbers that count; without them, all of the record. `masks` scores
    segments instead of boxes.
    """

    def __init__(
        self, record: str | Path, categories: Sequence[int] = (), masks: bool = False
    ) -> None:
        self.kind = "segm" if masks else "bbox"
        self.categories = list(categories)
        self.sizes: dict[int, tuple[int, int]] = {}
        truth: list[dict[str, Any]] = []
        for number, raw in enumerate(RecordFile(record), start=1):
            truth += self._truth(number, parse_example(raw), len(truth) + 1)
        if not truth:
            raise SystemExit(f"{record}: has no objects, so nothing can be scored")
        kinds = sorted({one["category_id"] for one in truth})
        self.truth = COCO()
        self.truth.dataset = {
            "info": {},
            "images": [{"id": key, "height": h, "width": w} for key, (h, w) in self.sizes.items()],
            "annotations": truth,
            "categories": [{"id": kind, "name": str(kind)} for kind in kinds],
        }
        with contextlib.redirect_stdout(io.StringIO()):
            self.truth.createIndex()
        self.found: list[dict[str, Any]] = []
        self.seen: list[int] = []

    def _truth(self, number: int, features: Mapping[str, Any], first: int) -> list[dict[str, Any]]:
        high, wide = int(features["image/height"][0]), int(features["image/width"][0])
        self.sizes[number] = (high, wide)
        sides = [np.asarray(features.get(f"image/object/bbox/{side}", ())) for side in SIDES]
        boxes = np.stack(sides, axis=1) * [wide, high, wide, high] if len(sides[0]) else ()
        masks = features.get("image/object/mask", ())
        if self.kind == "segm" and len(masks) != len(boxes):
            raise SystemExit("the record has no masks: make it with --include_masks")
        rows = []
        for at, (left, top, right, bottom) in enumerate(boxes):
            area = features.get("image/object/area", ())
            crowd = features.get("image/object/is_crowd", ())
            row = {
                "id": first + at,
                "image_id": number,
                "category_id": int(features["image/object/class/label"][at]),
                "bbox": [left, top, right - left, bottom - top],
                "area": float(area[at]) if len(area) else (right - left) * (bottom - top),
                "iscrowd": int(crowd[at]) if len(crowd) else 0,
            }
            if self.kind == "segm":
                pixels = np.asarray(Image.open(io.BytesIO(masks[at])))
                row["segmentation"] = runs.encode(np.asfortranarray(pixels.astype(np.uint8)))
            rows.append(row)
        return rows

    def add(
        self,
        number: int,
        count: float,
        boxes: np.ndarray,
        scores: np.ndarray,
        classes: np.ndarray,
        masks: np.ndarray | None = None,
    ) -> None:
        """The detections of the record's image `number`, the first being 1; boxes in 0 to 1."""
        high, wide = self.sizes[number]
        self.seen.append(number)
        for at in range(int(count)):
            top, left, bottom, right = boxes[at].astype(float) * [high, wide, high, wide]
            row = {
                "image_id": number,
                "category_id": round(float(classes[at])),
                "bbox": [left, top, right - left, bottom - top],
                "score": float(scores[at]),
            }
            if self.kind == "segm":
                assert masks is not None
                pixels = paste(masks[at], (top, left, bottom, right), high, wide)
                row["segmentation"] = runs.encode(np.asfortranarray(pixels))
            self.found.append(row)

    def result(self) -> float:
        if not self.found:
            return 0.0
        with contextlib.redirect_stdout(io.StringIO()):
            judge = COCOeval(self.truth, self.truth.loadRes(self.found), self.kind)
            judge.params.imgIds = self.seen
            if self.categories:
                judge.params.catIds = self.categories
            judge.evaluate()
            judge.accumulate()
            judge.summarize()
        return float(judge.stats[0])


SIDES = ("xmin", "ymin", "xmax", "ymax")


def paste(
    mask: np.ndarray, box: tuple[float, float, float, float], high: int, wide: int
) -> np.ndarray:
    """A detection's small mask, spread over its box in the whole image.

    A mask of the image's own size is already where it belongs.
    """
    if mask.shape == (high, wide):
        return (mask > 0.5).astype(np.uint8)
    whole = np.zeros((high, wide), np.uint8)
    top, left = max(round(box[0]), 0), max(round(box[1]), 0)
    bottom, right = min(round(box[2]), high), min(round(box[3]), wide)
    if bottom > top and right > left:
        shares = Image.fromarray(mask.astype(np.float32)).resize(
            (right - left, bottom - top), Image.Resampling.BILINEAR
        )
        whole[top:bottom, left:right] = np.asarray(shares) > 0.5
    return whole
