"""Folders of image files: one folder a class, or a list of names and labels."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from lpot.core.errors import DataError
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction
from lpot.data.datasets.tfrecord import ImageRecord, shards
from lpot.data.files import existing_file, existing_folder, not_found, read_text
from lpot.data.image import read

logger = logging.getLogger(__name__)

MOST = 2**31 - 1  # a label above it is a slip
SUFFIXES = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif"}


class ImageFiles(Dataset):
    """Image files with a class number each."""

    def __init__(
        self,
        samples: list[tuple[Path, int]],
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__(transform, filter)
        self.image_list = samples

    def count(self) -> int:
        return len(self.image_list)

    def read(self, number: int) -> tuple[Any, int]:
        path, label = self.image_list[number]
        return read(path), label

    def label(self, number: int) -> int:
        return self.image_list[number][1]

    def origin(self, number: int) -> str:
        return str(self.image_list[number][0])


class ImageFolder(ImageFiles):
    """Images in one folder per class; the classes are numbered in the folders' sorted order.

    Args:
        root: the folder of class folders: root/class_1/xxx.png, root/class_2/xxy.png, …
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
    """

    def __init__(
        self,
        root: str,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        top = existing_folder(root)
        self.classes = sorted(path.name for path in top.iterdir() if path.is_dir())
        if not self.classes:
            raise not_found(
                "ImageFolder", top, ["<class>/<image>.jpg"], "Make one folder per class"
            )
        samples = [
            (path, number)
            for number, name in enumerate(self.classes)
            for path in sorted((top / name).rglob("*"))
            if path.suffix.lower() in SUFFIXES
        ]
        if not samples:
            raise DataError(
                f"{top}: the {len(self.classes)} class folders hold no images "
                f"({', '.join(sorted(SUFFIXES))})"
            )
        super().__init__(samples, transform, filter)


class ImagenetRaw(ImageFiles):
    """Images listed in a file with their labels, one `name label` per line.

    Args:
        data_path: the folder the names are relative to.
        image_list: the list; by default data_path/val_map.txt, or the one next to data_path.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
    """

    def __init__(
        self,
        data_path: str,
        image_list: str | None = None,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        folder = existing_folder(data_path)
        super().__init__(_read_list(folder, _list_of(folder, image_list)), transform, filter)


class Imagenet(Dataset):
    """Deprecated: reads the files under `root` as ImageRecord or as ImagenetRaw.

    Args:
        root: a folder of TFRecord files, or of images with val_map.txt.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
    """

    def __init__(
        self,
        root: str,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__(transform, filter)
        top = existing_folder(root)
        records = bool(shards(top))
        logger.warning(
            "the dataset 'Imagenet' is deprecated: use %s",
            "ImageRecord" if records else "ImagenetRaw",
        )
        folder = top / "val" if not records and (top / "val").is_dir() else top
        # The samples are read raw: filter and transform are applied once, here.
        self._source: Dataset = ImageRecord(root) if records else ImagenetRaw(str(folder))

    def count(self) -> int:
        return self._source.count()

    def read(self, number: int) -> Any:
        return self._source.read(number)

    def origin(self, number: int) -> str:
        return self._source.origin(number)


def _list_of(folder: Path, image_list: str | None) -> Path:
    if image_list is not None:
        return existing_file(image_list, "list of images")
    for place in (folder / "val_map.txt", folder.parent / "val_map.txt"):
        if place.is_file():
            return place
    raise not_found(
        "ImagenetRaw",
        folder,
        ["val_map.txt"],
        "Write one 'name label' per line there, or give the file as image_list",
    )


def _read_list(folder: Path, listing: Path) -> list[tuple[Path, int]]:
    present = {path.name for path in folder.iterdir()}
    samples = []
    for number, line in enumerate(read_text(listing).split("\n"), start=1):
        if not line.strip():
            continue
        name, label = (*line.rsplit(maxsplit=1), "")[:2]
        if not label.isascii() or not label.isdigit() or int(label) > MOST:
            raise DataError(
                f"{listing}:{number}: expected 'name label', a class number last, not {line!r:.80}"
            )
        name = name.strip()
        path = folder / name
        if name not in present and not path.is_file():
            raise DataError(f"{listing}:{number}: there is no image {path}")
        samples.append((path, int(label)))
    if not samples:
        raise DataError(f"{listing}: the list is empty")
    return samples
