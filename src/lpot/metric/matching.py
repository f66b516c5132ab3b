"""From boxes to average precision: pycocotools matches them, the curve is drawn here."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.metric.base import Array, BaseMetric, Floats

AREAS = {
    "all": (0.0, 1e10),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, 1e10),
}
MOST = (1, 10, 100)  # detections that count, per image and category


@dataclass(frozen=True, eq=False)
class ImageBoxes:
    """Truth and detections of one image. Boxes are (x, y, width, height)."""

    image: Any  # its id; gives the order of equal scores
    truth: Floats
    truth_classes: Array
    areas: Floats
    crowd: Array
    boxes: Floats
    scores: Floats
    classes: Array


@dataclass(frozen=True, eq=False)
class Match:
    """Detections of one image, category and area range, best first."""

    image: Any
    scores: Floats
    hit: Array  # thresholds x detections
    ignored: Array
    wanted: int  # boxes to be found


class Matcher:
    """Collects matches image by image; what it keeps is a few bytes per detection."""

    def __init__(self, metric: BaseMetric, thresholds: Floats) -> None:
        self.coco: Any = metric.need("pycocotools.coco", "pycocotools")
        self.cocoeval: Any = metric.need("pycocotools.cocoeval", "pycocotools")
        self.thresholds = thresholds
        self.matches: dict[tuple[int, str], list[Match]] = {}

    def add(self, images: Sequence[ImageBoxes]) -> None:
        """Match the detections of some images with their truth."""
        truth = self._index([_truth_rows(at, one) for at, one in enumerate(images)], images)
        found = self._index([_found_rows(at, one) for at, one in enumerate(images)], images)
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
            evaluation = self.cocoeval.COCOeval(truth, found, "bbox")
            evaluation.params.iouThrs = self.thresholds
            evaluation.params.areaRng = [list(limits) for limits in AREAS.values()]
            evaluation.params.areaRngLbl = list(AREAS)
            evaluation.params.maxDets = list(MOST)
            evaluation.evaluate()
        areas = {limits: name for name, limits in AREAS.items()}
        for row in evaluation.evalImgs:
            if row is None:
                continue
            key = int(row["category_id"]), areas[tuple(row["aRng"])]
            match = Match(
                image=images[row["image_id"]].image,
                scores=np.asarray(row["dtScores"], dtype=np.float64),
                hit=np.asarray(row["dtMatches"]) > 0,
                ignored=np.asarray(row["dtIgnore"]).astype(bool),
                wanted=int(np.count_nonzero(np.asarray(row["gtIgnore"]) == 0)),
            )
            self.matches.setdefault(key, []).append(match)

    def _index(self, rows: list[list[dict[str, Any]]], images: Sequence[ImageBoxes]) -> Any:
        """A pycocotools COCO object of these annotations, made in memory."""
        annotations = [one for image in rows for one in image]
        for number, one in enumerate(annotations, start=1):  # 0 would mean "not matched"
            one["id"] = number
        kinds = {int(kind) for one in images for kind in (*one.truth_classes, *one.classes)}
        with contextlib.redirect_stdout(io.StringIO()):
            index = self.coco.COCO()
            index.dataset = {
                "images": [{"id": at} for at in range(len(images))],
                "annotations": annotations,
                "categories": [{"id": kind, "name": str(kind)} for kind in sorted(kinds)],
            }
            index.createIndex()
        return index

    def categories(self, area: str = "all") -> list[int]:
        """Categories with something to find; only they count."""
        return sorted(
            kind
            for (kind, where), rows in self.matches.items()
            if where == area and any(row.wanted for row in rows)
        )

    def precision(self, points: int, area: str = "all") -> Floats:
        """Average precision, thresholds x categories."""
        kinds = self.categories(area)
        table = np.zeros((len(self.thresholds), len(kinds)))
        for at, kind in enumerate(kinds):
            hit, miss, wanted = self._ordered(self.matches[kind, area], MOST[-1])
            for row, (good, bad) in enumerate(zip(hit, miss, strict=True)):
                table[row, at] = average_precision(good, bad, wanted, points)
        return table

    def recall(self, most: int, area: str = "all") -> Floats:
        """Highest recall with at most so many detections, thresholds x categories."""
        kinds = self.categories(area)
        table = np.zeros((len(self.thresholds), len(kinds)))
        for at, kind in enumerate(kinds):
            hit, _, wanted = self._ordered(self.matches[kind, area], most)
            table[:, at] = hit.sum(axis=1) / wanted
        return table

    def _ordered(self, rows: list[Match], most: int) -> tuple[Array, Array, int]:
        """Hits and false alarms of all images by falling score; equal scores by image id."""
        rows = by_image(rows)
        scores = np.concatenate([row.scores[:most] for row in rows])
        order = np.argsort(-scores, kind="stable")
        hit = np.concatenate([row.hit[:, :most] for row in rows], axis=1)[:, order]
        ignored = np.concatenate([row.ignored[:, :most] for row in rows], axis=1)[:, order]
        return hit & ~ignored, ~hit & ~ignored, sum(row.wanted for row in rows)


def by_image(rows: Sequence[Match]) -> list[Match]:
    return sorted(rows, key=lambda row: (isinstance(row.image, str), row.image))


def average_precision(hit: Array, miss: Array, wanted: int, points: int) -> float:
    """Of detections in falling score: area under the curve, or the mean at so many recall `points`.

    >>> round(average_precision(np.array([1, 0, 1]), np.array([0, 1, 0]), 2, 0), 4)
    0.8333
    """
    good, bad = np.cumsum(hit, dtype=np.float64), np.cumsum(miss, dtype=np.float64)
    recall = good / wanted
    precision = good / (good + bad + np.spacing(1))
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    if points == 0:
        steps = np.diff(recall, prepend=0.0)
        return float(steps @ envelope)
    at = np.searchsorted(recall, np.linspace(0.0, 1.0, points), side="left")
    reached = at < len(envelope)
    return float(envelope[at[reached]].sum() / points)


def _truth_rows(at: int, image: ImageBoxes) -> list[dict[str, Any]]:
    rows = zip(image.truth, image.truth_classes, image.areas, image.crowd, strict=True)
    return [
        {
            "image_id": at,
            "category_id": int(kind),
            "bbox": box.tolist(),
            "area": float(area),
            "iscrowd": int(crowd),
        }
        for box, kind, area, crowd in rows
    ]


def _found_rows(at: int, image: ImageBoxes) -> list[dict[str, Any]]:
    rows = zip(image.boxes, image.classes, image.scores, strict=True)
    return [
        {
            "image_id": at,
            "category_id": int(kind),
            "bbox": box.tolist(),
            "area": float(box[2] * box[3]),
            "score": float(score),
            "iscrowd": 0,
        }
        for box, kind, score in rows
    ]
