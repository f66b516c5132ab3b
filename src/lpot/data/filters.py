"""Filters: which samples of a dataset to keep, asked of each label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.core.errors import ConfigError, DataError
from lpot.data.registry import Registry


class Filter:
    """Says yes or no to (image, label); the image is None where the label is known without it."""

    def __call__(self, image: Any, label: Any) -> bool:
        return True


class LabelBalance(Filter):
    """Keeps the images of a detection dataset that have exactly `size` boxes.

    Args:
        size: the number of boxes.
    """

    def __init__(self, size: int = 1) -> None:
        if type(size) is not int or size < 0:
            raise ConfigError(f"size should be a number of boxes, not {size!r}")
        self.size = size

    def __call__(self, image: Any, label: Any) -> bool:
        boxes = label[0] if isinstance(label, list | tuple) and label else None
        if boxes is None or getattr(boxes, "ndim", 0) != 2:
            raise DataError(
                "LabelBalance counts boxes, so it works with COCORaw, COCONpy and COCORecord; "
                f"this label is {label!r:.60}"
            )
        return len(boxes) == self.size


FILTERS = Registry(
    "filter",
    {
        "LabelBalance": LabelBalance,
        "LabelBalanceCOCORaw": LabelBalance,
        "LabelBalanceCOCORecord": LabelBalance,
    },
)


def filter_registry(filter_type: str, framework: str = "") -> Callable[[type], type]:
    """Class decorator: make a filter of your own known by name to yaml, for this process."""

    def register(entry: type) -> type:
        FILTERS.add(filter_type, entry)
        return entry

    return register
