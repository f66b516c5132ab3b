"""Mean average precision of object detectors: mAP, COCOmAP, COCOmAPv2, VOCmAP."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, did_you_mean
from lpot.metric import boxes as annotation
from lpot.metric.arrays import to_numpy
from lpot.metric.base import Array, BaseMetric, Floats
from lpot.metric.boxes import (
    FOUR,
    THREE,
    DetectionPieces,
    from_corners,
    listed_names,
    plain,
    read_detections,
    read_truths,
)
from lpot.metric.matching import AREAS, MOST, ImageBoxes, Matcher, by_image

logger = logging.getLogger(__name__)

CHUNK = 64  # images matched at a time; what is not yet matched is kept as boxes
COCO_THRESHOLDS = "0.5:0.05:0.95"
PREFIX = "DetectionBoxes_"
MAP_KEYS = (
    "Precision/mAP",
    "Precision/mAP@.50IOU",
    "Precision/mAP@.75IOU",
    "Precision/mAP (small)",
    "Precision/mAP (medium)",
    "Precision/mAP (large)",
    "Recall/AR@1",
    "Recall/AR@10",
    "Recall/AR@100",
    "Recall/AR@100 (small)",
    "Recall/AR@100 (medium)",
    "Recall/AR@100 (large)",
)


class MeanAP(BaseMetric):
    """Mean average precision of boxes; the default is the area under the curve at IoU 0.5.

    Predictions: [boxes, scores, classes] or [num_detections, boxes, scores, classes], each with a
    batch axis, or in the order of `output_index_mapping`; boxes are (ymin, xmin, ymax, xmax), or
    `box_order: xyxy`. Labels: (boxes, names, class numbers, image ids), boxes always (ymin, xmin,
    ymax, xmax); of names and numbers one may be empty. `anno_path` is a yaml of `name: number`, or
    a COCO json: then truth, areas and crowds are taken from it and labels may be image ids alone.
    `iou_thrs` is a number, a list, or 'first:step:last'; `map_points` is 0 (area), 11 or 101;
    `map_key` names another of `details`.

    >>> metric = MeanAP()
    >>> boxes, scores, classes = [[[0.1, 0.1, 0.5, 0.5]]], [[0.9]], [[18]]
    >>> labels = [[[0.1, 0.1, 0.5, 0.45]]], [["dog"]], [[]], ["a.jpg"]
    >>> metric.update([boxes, scores, classes], labels)
    >>> round(metric.result(), 4)
    1.0
    """

    name = "mAP"
    bounds = (0.0, 1.0)
    usual_iou_thrs: float | str = 0.5
    usual_map_points = 0
    usual_mapping: Mapping[str, int] | None = None

    def __init__(
        self,
        anno_path: str | Path | None = None,
        iou_thrs: float | str | Sequence[float] | None = None,
        map_points: int | None = None,
        map_key: str = "DetectionBoxes_Precision/mAP",
        output_index_mapping: Mapping[str, int] | None = None,
        box_order: str = "yxyx",
    ) -> None:
        map_points = self.usual_map_points if map_points is None else map_points
        if map_points not in (0, 11, 101):
            raise self._wrong("map_points", f"is {map_points!r}, expected 0, 11 or 101")
        known = [PREFIX + key for key in MAP_KEYS]
        if map_key not in known:
            hint = did_you_mean(map_key, known)
            raise self._wrong("map_key", f"{map_key!r} is not known{hint or f': one of {known}'}")
        if box_order not in ("yxyx", "xyxy"):
            raise self._wrong("box_order", f"is {box_order!r}, expected yxyx or xyxy")
        self.thresholds = self._thresholds(self.usual_iou_thrs if iou_thrs is None else iou_thrs)
        self.map_points = map_points
        self.map_key = map_key
        self.mapping = self._mapping(output_index_mapping)
        self.box_order = box_order
        self.annotation = annotation.load(anno_path)
        self.reset()

    def _wrong(self, key: str, message: str) -> ConfigError:
        return ConfigError(message, path=f"{self.name}.{key}")

    def _thresholds(self, given: Any) -> Floats:
        try:
            if isinstance(given, str) and ":" in given:
                first, step, last = (float(part) for part in given.split(":"))
                values = np.linspace(first, last, round((last - first) / step) + 1)
            else:
                values = np.asarray(given, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError, ZeroDivisionError):
            values = np.empty(0)
        if not values.size or (values <= 0).any() or (values > 1).any():
            raise self._wrong(
                "iou_thrs", f"is {given!r}, expected numbers in (0, 1] or '{COCO_THRESHOLDS}'"
            )
        return values

    def _mapping(self, given: Mapping[str, int] | None) -> dict[str, int] | None:
        if self.usual_mapping is not None:
            given = {**self.usual_mapping, **(given or {})}
        if given is None:
            return None
        unknown = [key for key in given if key not in FOUR]
        missing = [key for key in THREE if given.get(key, -1) < 0]
        if unknown or missing:
            raise self._wrong(
                "output_index_mapping",
                f"is {dict(given)}, expected the output number of boxes, scores and classes "
                "(num_detections may be left out, or -1)",
            )
        return {key: at for key, at in given.items() if at >= 0}

    def reset(self) -> None:
        self.seen = 0
        self.images: set[Any] = set()
        self.pending: list[ImageBoxes] = []
        self.in_pixels = True
        self.matcher = Matcher(self, self.thresholds)
        self._summary: dict[str, float] | None = None

    def update(self, preds: Any, labels: Any = None) -> None:
        found = read_detections(self, preds, self.mapping, self.seen)
        truths = read_truths(self, labels, bool(self.annotation.images), self.seen)
        if len(found) != len(truths):
            raise self.fault(
                f"detections of {len(found)} images but labels of {len(truths)}", self.seen
            )
        self._summary = None
        for detection, truth in zip(found, truths, strict=True):
            if truth[3] in self.images:
                logger.warning(
                    "metric %r: image %r appeared twice and was skipped", self.name, truth[3]
                )
            else:
                self.images.add(truth[3])
                self.pending.append(self._join(*detection, *truth))
            self.seen += 1
        if len(self.pending) >= CHUNK:
            self._flush()

    def _flush(self) -> None:
        if self.pending:
            self.matcher.add(self.pending)
            self.pending = []

    def _join(
        self,
        found: Floats,
        scores: Floats,
        classes: Array,
        truth: Floats,
        names: Any,
        numbers: Any,
        image: Any,
    ) -> ImageBoxes:
        if self.box_order == "xyxy":
            found = found[:, [1, 0, 3, 2]]
        sample = self.seen
        # Shares of the image, or pixels? Labels tell; without any, the detections do.
        extent = truth if truth.size else found
        shares = bool(extent.size) and float(np.abs(extent).max()) <= 1.5
        if not self.annotation.images:
            self.in_pixels &= not shares
            kinds = self._kinds(names, numbers, len(truth), sample)
            box = from_corners(truth)
            areas = box[:, 2] * box[:, 3]
            crowd = np.zeros(len(box), dtype=np.int64)
            return ImageBoxes(image, box, kinds, areas, crowd, from_corners(found), scores, classes)
        known = self.annotation.images.get(str(image))
        if known is None:
            raise self.fault(f"image {image!r} is not in {self.annotation.path}", sample)
        if shares:
            found = found * [known.height, known.width, known.height, known.width]
        return ImageBoxes(
            image,
            known.boxes,
            known.classes,
            known.areas,
            known.crowd,
            from_corners(found),
            scores,
            classes,
        )

    def _kinds(self, names: Any, numbers: Any, count: int, sample: int) -> Array:
        listed = np.asarray(to_numpy(numbers)).reshape(-1).tolist()
        if not listed:
            listed = [self._number(plain(name), sample) for name in listed_names(names)]
        if len(listed) != count:
            raise self.fault(f"{count} boxes, but {len(listed)} labels", sample)
        return np.asarray(listed, dtype=np.int64)

    def _number(self, name: Any, sample: int) -> int:
        if name not in self.annotation.names:
            hint = did_you_mean(str(name), self.annotation.names)
            source = self.annotation.path or "the names of COCO; give anno_path for others"
            raise self.fault(f"label {name!r} is not among {source}{hint}", sample)
        return self.annotation.names[name]

    # -- results -----------------------------------------------------------------------------

    def result(self) -> float:
        if self.map_key.endswith((" (small)", " (medium)", " (large)")) and not self.in_pixels:
            raise self.fault(
                f"{self.map_key!r} needs areas in pixels, but boxes are shares of the image: "
                "give a COCO json as anno_path"
            )
        return self.details[self.map_key]

    @property
    def pieces(self) -> DetectionPieces:
        """What was found image by image, for the score that `map_key` names."""
        self._flush()
        key = self.map_key.removeprefix(PREFIX)
        area = next((area for area in AREAS if key.endswith(f"({area})")), "all")
        rows = [
            by_image(self.matcher.matches[kind, area]) for kind in self.matcher.categories(area)
        ]
        is_recall = key.startswith("Recall")
        most = int(key.partition("@")[2].partition(" ")[0]) if is_recall else MOST[-1]
        alone = {"Precision/mAP@.50IOU": 0.5, "Precision/mAP@.75IOU": 0.75}.get(key)
        chosen = np.flatnonzero(
            np.ones_like(self.thresholds) if alone is None else np.isclose(self.thresholds, alone)
        )
        points = None if is_recall else self.map_points
        return DetectionPieces.of(self.images, rows, most, chosen, points)

    @property
    def details(self) -> dict[str, float]:
        """The twelve numbers of COCO; -1 where nothing of that size, or threshold, was there."""
        if self._summary is None:
            self._flush()
            if not self.matcher.categories():
                raise (
                    self.empty() if not self.seen else self.fault("no image has a box to be found")
                )
            self._summary = self._summarize()
        return dict(self._summary)

    def _summarize(self) -> dict[str, float]:
        tables = {area: self.matcher.precision(self.map_points, area) for area in AREAS}
        values = [
            _mean(tables["all"]),
            _mean(tables["all"][np.isclose(self.thresholds, 0.5)]),
            _mean(tables["all"][np.isclose(self.thresholds, 0.75)]),
            *(_mean(tables[area]) for area in ("small", "medium", "large")),
            *(_mean(self.matcher.recall(most)) for most in (1, 10, 100)),
            *(_mean(self.matcher.recall(100, area)) for area in ("small", "medium", "large")),
        ]
        return {PREFIX + key: value for key, value in zip(MAP_KEYS, values, strict=True)}


class CocoMAP(MeanAP):
    """Mean average precision as COCO counts it: IoU 0.5:0.05:0.95, 101 points.

    >>> metric = CocoMAP()
    >>> boxes, scores, classes = [[[0.1, 0.1, 0.5, 0.5]]], [[0.9]], [[18]]
    >>> labels = [[[0.1, 0.1, 0.5, 0.43]]], [["dog"]], [[]], ["a.jpg"]
    >>> metric.update([boxes, scores, classes], labels)
    >>> round(metric.result(), 4)
    0.7
    """

    name = "COCOmAP"
    usual_iou_thrs = COCO_THRESHOLDS
    usual_map_points = 101


class CocoMAPv2(MeanAP):
    """COCOmAP with the order of the outputs given by `output_index_mapping`.

    >>> metric = CocoMAPv2(output_index_mapping={"classes": 0, "boxes": 1, "scores": 2})
    >>> labels = [[[0, 0, 1, 1]]], [["dog"]], [[]], ["a.jpg"]
    >>> metric.update([[[18]], [[[0, 0, 1, 1]]], [[0.9]]], labels)
    >>> round(metric.result(), 4)
    1.0
    """

    name = "COCOmAPv2"
    usual_iou_thrs = COCO_THRESHOLDS
    usual_map_points = 101
    usual_mapping = MappingProxyType({"num_detections": -1, "boxes": 0, "scores": 1, "classes": 2})


class VocMAP(MeanAP):
    """Mean average precision as VOC 2010 and later: IoU 0.5, area under the curve.

    >>> metric = VocMAP()
    >>> boxes, scores, classes = [[[0.1, 0.1, 0.5, 0.5], [0, 0, 1, 1]]], [[0.9, 0.95]], [[18, 18]]
    >>> labels = [[[0.1, 0.1, 0.5, 0.45]]], [["dog"]], [[]], ["a.jpg"]
    >>> metric.update([boxes, scores, classes], labels)
    >>> round(metric.result(), 4)
    0.5
    """

    name = "VOCmAP"


def _mean(table: Floats) -> float:
    return float(table.mean()) if table.size else -1.0
