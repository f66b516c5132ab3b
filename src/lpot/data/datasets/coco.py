"""COCO detection from its annotation file and a folder of images or of saved arrays."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction, existing
from lpot.data.image import read

logger = logging.getLogger(__name__)

Label = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Picture:
    """One image of the annotation file with its boxes."""

    path: Path
    label: Label


class COCORaw(Dataset):
    """COCO images with boxes: (image, (boxes, class names, class numbers, image's file name)).

    Boxes are ymin, xmin, ymax, xmax in 0 to 1; class numbers are the annotation file's own.

    Args:
        root: the folder the other two are relative to.
        img_dir: folder of the images.
        anno_dir: the annotation file.
        transform: applied to each (image, label).
        filter: keeps the samples it says yes to.
        missing: 'error' for an annotated image that is not there, 'skip' to leave it out.
    """

    suffix = ""

    def __init__(
        self,
        root: str,
        img_dir: str = "val2017",
        anno_dir: str = "annotations/instances_val2017.json",
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
        missing: str = "error",
    ) -> None:
        super().__init__(transform, filter)
        if missing not in ("error", "skip"):
            raise ConfigError(f"missing should be 'error' or 'skip', not {missing!r}")
        top = existing(root, "folder")
        folder = existing(top / img_dir, "folder of images")
        listing = existing(top / anno_dir, "annotation file")
        self.image_list = _read_annotations(listing, folder, self.suffix, missing == "skip")

    def count(self) -> int:
        return len(self.image_list)

    def read(self, number: int) -> tuple[Any, Label]:
        picture = self.image_list[number]
        return self._image(picture.path), picture.label

    def label(self, number: int) -> Label:
        return self.image_list[number].label

    def origin(self, number: int) -> str:
        return str(self.image_list[number].path)

    def _image(self, path: Path) -> Any:
        return read(path)


class COCONpy(COCORaw):
    """COCO images saved as numpy arrays, `<image name>.npy`, with the same labels as COCORaw.

    Args:
        root: the folder the other two are relative to.
        npy_dir: folder of the arrays.
        anno_dir: the annotation file.
        transform: applied to each (image, label).
        filter: keeps the samples it says yes to.
        missing: 'error' for an annotated image that is not there, 'skip' to leave it out.
    """

    suffix = ".npy"

    def __init__(
        self,
        root: str,
        npy_dir: str = "val2017",
        anno_dir: str = "annotations/instances_val2017.json",
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
        missing: str = "error",
    ) -> None:
        super().__init__(root, npy_dir, anno_dir, transform, filter, missing)

    def _image(self, path: Path) -> Any:
        try:
            return np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path}: can't be read as a numpy array: {error}") from error


def _read_annotations(listing: Path, folder: Path, suffix: str, skip: bool) -> list[Picture]:
    try:
        content = json.loads(listing.read_text(encoding="utf-8"))
        images, marks, kinds = (content[k] for k in ("images", "annotations", "categories"))
        names = {kind["id"]: str(kind["name"]) for kind in kinds}
        known = {image["id"] for image in images}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{listing}: is not a COCO annotation file with images, annotations and categories: "
            f"{type(error).__name__} {error}"
        ) from error
    by_image = defaultdict(list)
    for mark in marks:
        _check_mark(mark, known, names, listing)
        by_image[mark["image_id"]].append(mark)
    present = {path.name for path in folder.iterdir()}
    pictures, absent = [], []
    for image in images:
        name = image["file_name"] + suffix
        if name not in present and not (folder / name).is_file():
            absent.append(name)
            continue
        pictures.append(
            Picture(folder / name, _label(image, by_image[image["id"]], names, listing))
        )
    _report_absent(absent, len(images), folder, listing, skip)
    return pictures


def _check_mark(mark: Any, known: Iterable[Any], names: Mapping[Any, str], listing: Path) -> None:
    if not isinstance(mark, Mapping) or not {"image_id", "category_id", "bbox"} <= mark.keys():
        raise DataError(
            f"{listing}: an annotation lacks image_id, category_id or bbox: {mark!r:.80}"
        )
    which = f"{listing}: annotation {mark.get('id', '(no id)')}"
    if mark["image_id"] not in known:
        raise DataError(f"{which} speaks of image {mark['image_id']}, which is not in 'images'")
    if mark["category_id"] not in names:
        raise DataError(f"{which} has category {mark['category_id']}, which is not in 'categories'")
    if len(mark["bbox"]) not in (0, 4):
        raise DataError(
            f"{which} has a box of {len(mark['bbox'])} numbers, expected x, y, width, height"
        )


def _report_absent(absent: list[str], total: int, folder: Path, listing: Path, skip: bool) -> None:
    if not absent:
        return
    what = f"{len(absent)} of {total} images of {listing} are not in {folder}, first {absent[0]}"
    if not skip or len(absent) == total:
        raise DataError(f"{what}. Put them there, or say missing: skip to leave them out")
    logger.warning("%s: left out", what)


def _label(
    image: Mapping[str, Any], marks: list[Any], names: Mapping[Any, str], listing: Path
) -> Label:
    height, width = image.get("height"), image.get("width")
    if not height or not width:
        raise DataError(f"{listing}: image {image.get('id')} has no height and width")
    kept = [mark for mark in marks if len(mark["bbox"]) == 4]
    boxes = np.asarray([mark["bbox"] for mark in kept], dtype=np.float64).reshape(-1, 4)
    corners = np.stack(
        [boxes[:, 1], boxes[:, 0], boxes[:, 1] + boxes[:, 3], boxes[:, 0] + boxes[:, 2]], axis=1
    ) / np.asarray([height, width, height, width], dtype=np.float64)
    return (
        corners.astype(np.float32),
        np.asarray([names[mark["category_id"]].encode() for mark in kept], dtype=np.bytes_),
        np.asarray([mark["category_id"] for mark in kept], dtype=np.int64),
        np.asarray(str(image["file_name"]).encode()),
    )
