"""Pairs of a content image and a style image, for style transfer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction
from lpot.data.files import existing_folder, not_found
from lpot.data.image import read
from lpot.data.transforms.base import size_of
from lpot.data.transforms.resample import resize


class StyleTransfer(Dataset):
    """Every content image with every style image: ((content, style), 0), floats in 0 to 1.

    Args:
        content_folder: folder of content images.
        style_folder: folder of style images.
        crop_ratio: share cropped from each side of the style image.
        resize_shape: height and width of both.
        image_format: the files' suffix.
        transform: applied to each ((content, style), 0).
        filter: keeps only samples for which it returns true.
    """

    def __init__(
        self,
        content_folder: str,
        style_folder: str,
        crop_ratio: float = 0.1,
        resize_shape: Any = (256, 256),
        image_format: str = "jpg",
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__(transform, filter)
        if not 0 <= crop_ratio < 0.5:
            raise ConfigError(f"crop_ratio should be from 0 up to 0.5, not {crop_ratio!r}")
        self.crop_ratio = float(crop_ratio)
        self.size = size_of(resize_shape, "resize_shape")
        self.content = _images(content_folder, image_format)
        self.style = _images(style_folder, image_format)

    def count(self) -> int:
        return len(self.content) * len(self.style)

    def read(self, number: int) -> tuple[tuple[np.ndarray, np.ndarray], int]:
        content, style = self._paths(number)
        picture = read(style)
        width, height = picture.size
        left, top = round(width * self.crop_ratio), round(height * self.crop_ratio)
        middle = picture.crop((left, top, width - left, height - top))
        return (self._values(read(content)), self._values(middle)), 0

    def label(self, number: int) -> int:
        return 0

    def origin(self, number: int) -> str:
        return " with ".join(str(path) for path in self._paths(number))

    def _paths(self, number: int) -> tuple[Path, Path]:
        content, style = divmod(number, len(self.style))
        return self.content[content], self.style[style]

    def _values(self, picture: Any) -> np.ndarray:
        return np.asarray(resize(picture, self.size), dtype=np.float32) / np.float32(255)


def _images(folder: str, suffix: str) -> list[Path]:
    top = existing_folder(folder)
    found = sorted(top.glob(f"*{suffix}"))
    if not found:
        raise not_found("style_transfer", top, [f"*{suffix}"], "Set image_format to your suffix")
    return found
