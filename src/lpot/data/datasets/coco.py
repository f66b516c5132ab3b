"""COCO detection from its annotation file and a folder of images or of saved arrays."""

from __future__ import annotations

import logging
import math
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.core.files.card import is_inside
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction
from lpot.data.files import existing_file, existing_folder, read_json
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

    Boxes are ymin, xmin, ymax, xmax in 0 to 1; class numbers are the annotation file's own. Crowds
    are among the boxes: pass the annotation file to the metric too (`COCOmAP: {anno_path: …}`), so
    that it treats them as COCO does.

    Args:
        root: the folder the other two are relative to.
        img_dir: folder of the images.
        anno_dir: the annotation file.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
        missing: 'error' if an annotated image is missing, 'skip' to leave it out.
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
        top = existing_folder(root)
        folder = existing_folder(top / img_dir, "folder of images")
        listing = existing_file(top / anno_dir, "annotation file")
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
        filter: keeps only samples for which it returns true.
        missing: 'error' if an annotated image is missing, 'skip' to leave it out.
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
        except (OSError, ValueError, EOFError, tokenize.TokenError) as error:
            raise DataError(f"{path}: can't be read as a numpy array: {error}") from error


def _read_annotations(listing: Path, folder: Path, suffix: str, skip: bool) -> list[Picture]:
    content = read_json(listing)
    try:
        images, marks, kinds = (content[k] for k in ("images", "annotations", "categories"))
        names = {kind["id"]: str(kind["name"]) for kind in kinds}
        by_image: dict[Any, list[Any]] = {image["id"]: [] for image in images}
        marks = list(marks)
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{listing}: is not a COCO annotation file with images, annotations and categories: "
            f"{type(error).__name__} {error}"
        ) from error
    if not images:
        raise DataError(f"{listing}: holds no images")
    if len(by_image) != len(images):
        ids = [image["id"] for image in images]
        twice = next(one for number, one in enumerate(ids) if one in ids[:number])
        raise DataError(f"{listing}: two images have the id {twice!r:.40}")
    for mark in marks:
        _check_mark(mark, by_image, names, listing)
        by_image[mark["image_id"]].append(mark)
    present = {path.name for path in folder.iterdir()}
    pictures, absent = [], []
    for image in images:
        _check_image(image, listing)
        name = image["file_name"] + suffix
        if name not in present and not (folder / name).is_file():
            absent.append(name)
            continue
        pictures.append(Picture(folder / name, _label(image, by_image[image["id"]], names)))
    _report_absent(absent, len(images), folder, listing, skip)
    return pictures


def _check_image(image: Mapping[str, Any], listing: Path) -> None:
    which = f"{listing}: image {image['id']!r:.40}"
    if not isinstance(image.get("file_name"), str):
        raise DataError(f"{which} has no file_name")
    if not is_inside(image["file_name"]):
        raise DataError(
            f"{which} has the file_name {image['file_name']!r:.80}, which leads out of the folder "
            "of images"
        )
    for key in ("height", "width"):
        if not _is_number(image.get(key)) or image[key] <= 0:
            raise DataError(f"{which} has the {key} {image.get(key)!r}, expected pixels")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_mark(
    mark: Any, known: Mapping[Any, Any], names: Mapping[Any, str], listing: Path
) -> None:
    if not isinstance(mark, Mapping) or not {"image_id", "category_id", "bbox"} <= mark.keys():
        raise DataError(
            f"{listing}: an annotation lacks image_id, category_id or bbox: {mark!r:.80}"
        )
    which = f"{listing}: annotation {mark.get('id', '(no id)')}"
    for key in ("image_id", "category_id"):
        if not isinstance(mark[key], int | str):
            raise DataError(f"{which} has the {key} {mark[key]!r:.40}, expected a number")
    if mark["image_id"] not in known:
        raise DataError(f"{which} refers to image {mark['image_id']}, which is not in 'images'")
    if mark["category_id"] not in names:
        raise DataError(f"{which} has category {mark['category_id']}, which is not in 'categories'")
    box = mark["bbox"]
    numbers = isinstance(box, list) and all(map(_is_number, box))
    if not numbers or len(box) not in (0, 4) or min(box[2:], default=0) < 0:
        raise DataError(f"{which} has the box {box!r:.80}, expected x, y, width, height")


def _report_absent(absent: list[str], total: int, folder: Path, listing: Path, skip: bool) -> None:
    if not absent:
        return
    what = f"{len(absent)} of {total} images of {listing} are not in {folder}, first {absent[0]}"
    if not skip or len(absent) == total:
        raise DataError(f"{what}. Put them there, or set missing: skip to leave them out")
    logger.warning("%s: skipped", what)


def _label(image: Mapping[str, Any], marks: list[Any], names: Mapping[Any, str]) -> Label:
    height, width = image["height"], image["width"]
    kept = [mark for mark in marks if len(mark["bbox"]) == 4]
    boxes = np.asarray([mark["bbox"] for mark in kept], dtype=np.float64).reshape(-1, 4)
    corners = np.stack(
        [boxes[:, 1], boxes[:, 0], boxes[:, 1] + boxes[:, 3], boxes[:, 0] + boxes[:, 2]], axis=1
    ) / np.asarray([height, width, height, width], dtype=np.float64)
    return (
        corners.astype(np.float32),
        np.asarray([_bytes(names[mark["category_id"]]) for mark in kept], dtype=np.bytes_),
        np.asarray([mark["category_id"] for mark in kept], dtype=np.int64),
        np.asarray(_bytes(image["file_name"])),
    )


def _bytes(text: str) -> bytes:
    """JSON may hold half of a surrogate pair, which plain UTF-8 has no bytes for."""
    return text.encode(errors="surrogatepass")
