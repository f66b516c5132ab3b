"""Datasets that lie in TFRecord files, read without TensorFlow."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

from lpot.core.errors import DataError
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction
from lpot.data.files import existing, not_found
from lpot.data.record import Features, RecordFile, parse_example
from lpot.data.transforms.base import Sample
from lpot.data.transforms.parse import coco_sample, imagenet_sample, voc_sample

RECORD_SUFFIXES = {".tfrecord", ".tfrecords", ".record", ".records"}


class TFRecordDataset(Dataset):
    """The raw records of TFRecord files, for a ParseDecode transform to parse.

    Args:
        root: a record file, or a folder of them.
        transform: applied to each record; ParseDecodeImagenet and similar make (image, label).
        filter: refused here, since a raw record has no label; the other datasets take one.
        num_cores: accepted for compatibility; no effect.
    """

    reader: Callable[[Features, str], Sample] | None = None

    def __init__(
        self,
        root: str,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
        num_cores: int = 28,
    ) -> None:
        super().__init__(transform, filter)
        self.files = [RecordFile(path) for path in _record_files(root, type(self).__name__)]
        self._ends: list[int] | None = None

    def count(self) -> int:
        return self._totals()[-1]

    def read(self, number: int) -> Any:
        place, inside = self._locate(number)
        record = self.files[place][inside]
        if self.reader is None:
            return record
        origin = self.origin(number)
        return self.reader(parse_example(record, origin), origin)

    def label(self, number: int) -> Any:
        if self.reader is None:
            raise DataError(
                "a filter needs parsed records: use ImageRecord, COCORecord or VOCRecord"
            )
        return super().label(number)

    def origin(self, number: int) -> str:
        place, inside = self._locate(number)
        return f"{self.files[place].path}: record {inside}"

    def _totals(self) -> list[int]:
        """Number of records up to and with each file."""
        if self._ends is None:
            self._ends = list(accumulate(len(file) for file in self.files))
            if not self._ends[-1]:
                names = ", ".join(str(file.path) for file in self.files[:3])
                raise DataError(f"{names}: holds no records")
        return self._ends

    def _locate(self, number: int) -> tuple[int, int]:
        ends = self._totals()
        place = bisect.bisect_right(ends, number)
        return place, number - (ends[place - 1] if place else 0)


class ImageRecord(TFRecordDataset):
    """ImageNet as TFRecord files: (image, class number).

    Args:
        root: folder of files named like validation-000-of-100, or one record file.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
        num_cores: accepted for compatibility; no effect.
    """

    reader = staticmethod(imagenet_sample)


class COCORecord(TFRecordDataset):
    """COCO as a TFRecord file: (image, (boxes, class names, class numbers, image id)).

    Boxes are ymin, xmin, ymax, xmax in 0 to 1.

    Args:
        root: the record file, or a folder of them.
        num_cores: accepted for compatibility; no effect.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
    """

    reader = staticmethod(coco_sample)

    def __init__(
        self,
        root: str,
        num_cores: int = 28,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__(root, transform, filter, num_cores)


class VOCRecord(COCORecord):
    """Pascal VOC segmentation as TFRecord files: (image, class of each pixel).

    Args:
        root: folder of files named like val-00000-of-00004.tfrecord, or one record file.
        num_cores: accepted for compatibility; no effect.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
    """

    reader = staticmethod(voc_sample)


def shards(folder: Path) -> list[Path]:
    """The record files of a folder: the validation part where there are several parts."""
    named = sorted(folder.glob("*-*-of-*"))
    chosen = [path for path in named if path.name.startswith("val")] or named
    return chosen or sorted(p for p in folder.iterdir() if p.suffix.lower() in RECORD_SUFFIXES)


def _record_files(root: str, name: str) -> list[Path]:
    path = existing(root, "record file or folder")
    if path.is_file():
        return [path]
    found = shards(path)
    if not found:
        raise not_found(
            name,
            path,
            ["validation-00000-of-00128", "*.tfrecord", "*.record"],
            "Make the record files with the dataset's own converter, or name one file as root",
        )
    return found
