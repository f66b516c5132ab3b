"""Reading what detectors and detection datasets give: boxes, scores, classes, labels."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.metric.arrays import no_inf, no_nan, to_numpy
from lpot.metric.base import Array, BaseMetric, Floats
from lpot.metric.matching import Match

THREE = {"boxes": 0, "scores": 1, "classes": 2}
FOUR = {"num_detections": 0, "boxes": 1, "scores": 2, "classes": 3}

Detection = tuple[Floats, Floats, Array]  # boxes, scores, classes of one image
Truth = tuple[Floats, Any, Any, Any]  # boxes, names, class numbers, id of one image


def read_detections(
    metric: BaseMetric, preds: Any, mapping: Mapping[str, int] | None, seen: int
) -> list[Detection]:
    """Detections of each image of a batch; boxes stay in the model's order of corners."""
    if preds is None:
        raise metric.fault("needs predictions, but None was given", seen)
    outputs = list(preds.values()) if isinstance(preds, Mapping) else list(preds)
    mapping = mapping or {3: THREE, 4: FOUR}.get(len(outputs))
    if mapping is None or max(mapping.values()) >= len(outputs):
        raise metric.fault(
            f"the model gives {len(outputs)} outputs, expected [boxes, scores, classes] or "
            "[num_detections, boxes, scores, classes]; set the order with output_index_mapping",
            seen,
        )
    boxes, scores, classes = (_images(outputs[mapping[key]]) for key in THREE)
    counts: list[Any] = [None] * len(boxes)
    if "num_detections" in mapping:
        counts = to_numpy(outputs[mapping["num_detections"]]).reshape(-1).tolist()
    if len({len(boxes), len(scores), len(classes), len(counts)}) != 1:
        raise metric.fault(
            f"boxes, scores and classes are of {len(boxes)}, {len(scores)} and {len(classes)} "
            "images: is their order right? set it with output_index_mapping",
            seen,
        )
    rows = zip(boxes, scores, classes, counts, strict=True)
    return [_detection(metric, seen + at, *row) for at, row in enumerate(rows)]


def _images(output: Any) -> list[Any]:
    return list(output if isinstance(output, list | tuple) else to_numpy(output))


def _detection(
    metric: BaseMetric, sample: int, boxes: Any, scores: Any, classes: Any, count: float | None
) -> Detection:
    corners = to_numpy(boxes).astype(np.float64)
    score = to_numpy(scores).astype(np.float64).reshape(-1)
    kind = to_numpy(classes).reshape(-1)
    if corners.size != 4 * score.size or score.size != kind.size:
        raise metric.fault(
            f"boxes of shape {corners.shape}, {score.size} scores and {kind.size} classes don't "
            "fit: is the order of outputs right? set it with output_index_mapping",
            sample,
        )
    corners = corners.reshape(-1, 4)
    if count is not None:
        if not 0 <= count <= len(score):
            raise metric.fault(f"num_detections is {count}, but there are {len(score)}", sample)
        corners, score, kind = (one[: int(count)] for one in (corners, score, kind))
    for array, what in ((corners, "box"), (score, "score"), (kind, "class")):
        no_nan(metric, array.reshape(1, -1), what, sample)
        no_inf(metric, array.reshape(1, -1), what, sample)
    return corners, score, np.rint(kind).astype(np.int64)


def read_truths(metric: BaseMetric, labels: Any, ids_alone: bool, seen: int) -> list[Truth]:
    """Labels of each image of a batch; `ids_alone`: image ids without anything else will do."""
    if labels is None:
        raise metric.fault("needs labels: (boxes, names, class numbers, image ids)", seen)
    fields = list(labels) if isinstance(labels, list | tuple) else [labels]
    if len(fields) == 4 and not all(isinstance(one, str | bytes | int) for one in fields):
        if np.ndim(fields[3]) == 0:  # one image without a batch axis
            fields = [[one] for one in fields]
        lists = [list(one) for one in fields]
        if len({len(one) for one in lists}) != 1:
            raise metric.fault(f"label fields are of {[len(one) for one in lists]} images", seen)
        return [
            (_corners(metric, boxes, seen + at), names, numbers, plain(image))
            for at, (boxes, names, numbers, image) in enumerate(zip(*lists, strict=True))
        ]
    if ids_alone:
        ids = [one for part in fields for one in to_numpy(part).reshape(-1).tolist()]
        return [(np.empty((0, 4)), (), (), plain(one)) for one in ids]
    raise metric.fault(
        f"labels have {len(fields)} fields, expected (boxes, names, class numbers, image ids); "
        "image ids alone need anno_path to be a COCO json",
        seen,
    )


def _corners(metric: BaseMetric, boxes: Any, sample: int) -> Floats:
    corners = to_numpy(boxes).astype(np.float64)
    if corners.size % 4:
        raise metric.fault(
            f"the label's boxes have shape {corners.shape}, expected (ymin, xmin, ymax, xmax) each",
            sample,
        )
    no_nan(metric, corners.reshape(1, -1), "label's box", sample)
    no_inf(metric, corners.reshape(1, -1), "label's box", sample)
    return corners.reshape(-1, 4)


def from_corners(corners: Floats) -> Floats:
    """(ymin, xmin, ymax, xmax) to (x, y, width, height)."""
    top, left, bottom, right = corners.reshape(-1, 4).T
    return np.stack([left, top, right - left, bottom - top], axis=1)


def plain(value: Any) -> Any:
    """An image id or a name as text or int."""
    if hasattr(value, "dtype"):
        value = to_numpy(value).reshape(-1)[0].item()
    while isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    return value.decode("utf-8") if isinstance(value, bytes) else value


def listed_names(names: Any) -> list[Any]:
    if isinstance(names, str | bytes):
        return [names]
    return list(names if isinstance(names, list | tuple) else to_numpy(names).reshape(-1))


# -- Detections image by image, to be scored again as if some images had come more than once.


Column = tuple[Array, Array, Array, Floats]  # image of each detection, hits, misses, boxes by image


@dataclass(frozen=True, eq=False)
class DetectionPieces:
    """Matches of one kind of score: average precision at `points`, or recall where it is None."""

    keys: Sequence[Any]
    columns: tuple[Column, ...]  # one for each category
    points: int | None

    @classmethod
    def of(
        cls,
        images: Iterable[Any],
        categories: Iterable[Sequence[Match]],
        most: int,
        chosen: Array,
        points: int | None,
    ) -> DetectionPieces:
        """`most` detections of an image count, at the thresholds `chosen`."""
        keys = tuple(images)
        places = {key: at for at, key in enumerate(keys)}
        columns = tuple(_column(rows, places, most, chosen) for rows in categories)
        return cls(keys, columns, points)

    def score(self, counts: Floats) -> float:
        found = [self._category(column, counts) for column in self.columns]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else float("nan")

    def _category(self, column: Column, counts: Floats) -> float | None:
        """The mean over thresholds; None where nothing drawn is to be found."""
        image, hit, miss, boxes = column
        wanted = float(boxes @ counts)
        if not wanted or not len(hit):
            return None
        if not image.size:
            return 0.0
        times = counts[image]
        good = np.cumsum(hit * times, axis=1)
        recall = good / wanted
        if self.points is None:
            return float(recall[:, -1].mean())
        bad = np.cumsum(miss * times, axis=1)
        precision = good / (good + bad + np.spacing(1))
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        if self.points == 0:
            steps = np.diff(recall, prepend=0.0, axis=1)
            return float((steps * envelope).sum(axis=1).mean())
        return _at_points(recall, envelope, self.points)


def _at_points(recall: Floats, envelope: Floats, points: int) -> float:
    """The mean of the envelope at so many levels of recall, over all thresholds."""
    levels = np.linspace(0.0, 1.0, points)
    total = 0.0
    for row, heights in zip(recall, envelope, strict=True):
        at = np.searchsorted(row, levels, side="left")
        total += float(heights[at[at < len(heights)]].sum())
    return total / (len(recall) * points)


def _column(rows: Sequence[Match], places: dict[Any, int], most: int, chosen: Array) -> Column:
    boxes = np.zeros(len(places))
    for row in rows:
        boxes[places[row.image]] += row.wanted
    scores = np.concatenate([row.scores[:most] for row in rows])
    order = np.argsort(-scores, kind="stable")
    images = [np.full(len(row.scores[:most]), places[row.image]) for row in rows]
    hit = np.concatenate([row.hit[chosen, :most] for row in rows], axis=1)[:, order]
    ignored = np.concatenate([row.ignored[chosen, :most] for row in rows], axis=1)[:, order]
    return np.concatenate(images)[order], hit & ~ignored, ~hit & ~ignored, boxes


# -- What `anno_path` of the detection metrics may be: a COCO json, or a yaml of name: number.


# The 80 categories of COCO, for labels that come as names.
COCO_NAMES: dict[str, int] = {
    "person": 1, "bicycle": 2, "car": 3, "motorcycle": 4, "airplane": 5, "bus": 6, "train": 7,
    "truck": 8, "boat": 9, "traffic light": 10, "fire hydrant": 11, "stop sign": 13,
    "parking meter": 14, "bench": 15, "bird": 16, "cat": 17, "dog": 18, "horse": 19, "sheep": 20,
    "cow": 21, "elephant": 22, "bear": 23, "zebra": 24, "giraffe": 25, "backpack": 27,
    "umbrella": 28, "handbag": 31, "tie": 32, "suitcase": 33, "frisbee": 34, "skis": 35,
    "snowboard": 36, "sports ball": 37, "kite": 38, "baseball bat": 39, "baseball glove": 40,
    "skateboard": 41, "surfboard": 42, "tennis racket": 43, "bottle": 44, "wine glass": 46,
    "cup": 47, "fork": 48, "knife": 49, "spoon": 50, "bowl": 51, "banana": 52, "apple": 53,
    "sandwich": 54, "orange": 55, "broccoli": 56, "carrot": 57, "hot dog": 58, "pizza": 59,
    "donut": 60, "cake": 61, "chair": 62, "couch": 63, "potted plant": 64, "bed": 65,
    "dining table": 67, "toilet": 70, "tv": 72, "laptop": 73, "mouse": 74, "remote": 75,
    "keyboard": 76, "cell phone": 77, "microwave": 78, "oven": 79, "toaster": 80, "sink": 81,
    "refrigerator": 82, "book": 84, "clock": 85, "vase": 86, "scissors": 87, "teddy bear": 88,
    "hair drier": 89, "toothbrush": 90,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ImageTruth:
    """One image of a COCO json: size and boxes (x, y, width, height) in pixels."""

    width: float
    height: float
    boxes: Floats
    classes: Array
    areas: Floats
    crowd: Array


@dataclass(frozen=True, eq=False)
class Annotation:
    """Category numbers by name; images by id, file name and stem, where a COCO json was given."""

    names: Mapping[str, int]
    images: Mapping[str, ImageTruth] = field(default_factory=dict)
    path: str = ""


def load(path: str | Path | None) -> Annotation:
    """Read the file; without one, the names of COCO."""
    if path is None:
        return Annotation(COCO_NAMES)
    file = Path(path)
    if not file.is_file():
        raise ConfigError(
            f"there is no file {str(path)!r}: expected a COCO json or a yaml of `name: number`",
            path="anno_path",
        )
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not UTF-8 text: {error}") from error
    if text.lstrip().startswith("{") and file.suffix.lower() != ".yaml":
        return _coco(file, text)
    return Annotation(_label_map(file, text), path=str(path))


def _label_map(file: Path, text: str) -> dict[str, int]:
    yaml: Any = importlib.import_module("ruamel.yaml")
    try:
        raw = yaml.YAML(typ="safe", pure=True).load(text)
    except yaml.error.YAMLError as error:
        raise DataError(f"{file}: not a yaml of `name: number`: {error}") from error
    except RecursionError as error:
        raise DataError(f"{file}: not a yaml of `name: number`: nested too deeply") from error
    if not isinstance(raw, Mapping) or not raw:
        raise DataError(f"{file}: expected a yaml of `name: number`, got {type(raw).__name__}")
    wrong = {name: number for name, number in raw.items() if type(number) is not int}
    if wrong:
        name, number = next(iter(wrong.items()))
        raise DataError(f"{file}: {name!r} has {number!r}, expected a whole number")
    return {str(name): number for name, number in raw.items()}


def _coco(file: Path, text: str) -> Annotation:
    try:
        raw = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{file}:{error.lineno}: not valid json: {error.msg}") from error
    except RecursionError as error:
        raise DataError(f"{file}: not a COCO instances file: nested too deeply") from error
    if "images" not in raw:  # a label map in json clothes
        return Annotation(_label_map(file, text), path=str(file))
    try:
        names = {str(one["name"]): int(one["id"]) for one in raw["categories"]}
        rows: dict[Any, list[Mapping[str, Any]]] = {one["id"]: [] for one in raw["images"]}
        for number, one in enumerate(raw["annotations"]):
            if one["image_id"] not in rows:
                raise DataError(
                    f"{file}: annotation {number} (id {one.get('id')}) is for image "
                    f"{one['image_id']}, which is not in the file"
                )
            if len(one["bbox"]) == 4:
                rows[one["image_id"]].append(one)
        images: dict[str, ImageTruth] = {}
        for one in raw["images"]:
            truth = _truth(one, rows[one["id"]])
            name = str(one.get("file_name", one["id"]))
            for key in (PurePosixPath(name).stem, name, str(one["id"])):
                images[key] = truth
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: not a COCO instances file: {error!r}") from error
    return Annotation(names, images, str(file))


def _truth(image: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> ImageTruth:
    boxes = np.asarray([one["bbox"] for one in rows], dtype=np.float64).reshape(-1, 4)
    areas = [one.get("area", box[2] * box[3]) for one, box in zip(rows, boxes, strict=True)]
    return ImageTruth(
        width=float(image["width"]),
        height=float(image["height"]),
        boxes=boxes,
        classes=np.asarray([one["category_id"] for one in rows], dtype=np.int64),
        areas=np.asarray(areas, dtype=np.float64),
        crowd=np.asarray([one.get("iscrowd", 0) for one in rows], dtype=np.int64),
    )
