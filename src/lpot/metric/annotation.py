"""What `anno_path` of the detection metrics may be: a COCO json, or a yaml of name: number."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.metric.base import Array, Floats

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
