"""Transforms that resample the image to another size."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.data.draw import generator
from lpot.data.image import height_width, to_array
from lpot.data.transforms.base import Sample, Transform, between, numbers, size_of
from lpot.data.transforms.geometry import crop
from lpot.data.transforms.resample import method_of, resize, resize_keep_type

logger = logging.getLogger(__name__)


class Resize(Transform):
    """Resizes the image, as Pillow does.

    Args:
        size: one number, or height and width.
        interpolation: 'bilinear', 'nearest', 'bicubic', 'lanczos', 'box' or 'hamming'.
        keep_ratio: with one number: true makes the shorter side that long and keeps the image's
            proportions; false makes a square. If not given: a square, with a note in the log.
    """

    takes_pillow = True

    def __init__(
        self, size: Any, interpolation: str = "bilinear", keep_ratio: bool | None = None
    ) -> None:
        self.size = size_of(size)
        self.interpolation = method_of(interpolation)
        self.keep_ratio = keep_ratio
        if keep_ratio and self.size[0] != self.size[1]:
            raise ConfigError("keep_ratio takes one number as size: the shorter side's length")
        single = len(numbers(size, "size")) == 1
        self._note = single and keep_ratio is None

    def on_image(self, image: Any) -> Any:
        height, width = height_width(image)
        if self._note and height != width:
            self._note = False
            logger.info(
                "Resize with size %d makes squares; to resize the shorter side and keep the "
                "aspect ratio, set keep_ratio: true",
                self.size[0],
            )
        size = shorter_side(height, width, self.size[0]) if self.keep_ratio else self.size
        return resize(image, size, self.interpolation)


def shorter_side(height: int, width: int, side: int) -> tuple[int, int]:
    """The size whose shorter side is `side`, proportions kept, the other side rounded down."""
    if height <= width:
        return side, int(side * width / height)
    return int(side * height / width), side


class CropResize(Transform):
    """Crops a given rectangle and resizes it.

    Args:
        x: first column kept.
        y: first row kept.
        width: number of columns.
        height: number of rows.
        size: one number for a square, or height and width, of the result.
        interpolation: as in Resize.
    """

    takes_pillow = True

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Any, interpolation: str = "bilinear"
    ) -> None:
        self.x, self.y, self.width, self.height = x, y, width, height
        self.size = size_of(size)
        self.interpolation = method_of(interpolation)

    def on_image(self, image: Any) -> Any:
        part = crop(image, self.y, self.x, self.height, self.width)
        return resize(part, self.size, self.interpolation)


class RandomResizedCrop(Transform):
    """Crops a random part of random proportions and resizes it.

    Args:
        size: one number for a square, or height and width, of the result.
        scale: lowest and highest share of the image's area.
        ratio: lowest and highest width over height of the part.
        interpolation: as in Resize.
    """

    takes_pillow = True

    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: Any = (3 / 4, 4 / 3),
        interpolation: str = "bilinear",
    ) -> None:
        self.size = size_of(size)
        self.scale = between(scale, "scale")
        self.ratio = between(ratio, "ratio")
        self.interpolation = method_of(interpolation)

    def on_image(self, image: Any) -> Any:
        part = crop(image, *self._place(*height_width(image)))
        return resize(part, self.size, self.interpolation)

    def _place(self, height: int, width: int) -> tuple[int, int, int, int]:
        draw = generator()
        for _ in range(10):
            area = height * width * draw.uniform(*self.scale)
            ratio = math.exp(draw.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            part_width, part_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < part_width <= width and 0 < part_height <= height:
                top = int(draw.integers(height - part_height + 1))
                left = int(draw.integers(width - part_width + 1))
                return top, left, part_height, part_width
        # No draw fitted: the largest middle part whose proportions are allowed.
        part_width = max(1, min(width, round(height * self.ratio[1])))
        part_height = max(1, min(height, round(width / self.ratio[0])))
        return (height - part_height) // 2, (width - part_width) // 2, part_height, part_width


class ResizeWithRatio(Transform):
    """Enlarges until the shorter side reaches `min_dim`, keeps the longer one within `max_dim`.

    Proportions are kept. With padding, the image is centred in a square of `max_dim`
    and the boxes of a detection label move along.

    Args:
        min_dim: minimum length of the shorter side.
        max_dim: maximum length of the longer side.
        padding: whether to pad to a square.
        constant_value: the value of the padding.
    """

    def __init__(
        self,
        min_dim: int = 800,
        max_dim: int = 1365,
        padding: bool = False,
        constant_value: float = 0,
    ) -> None:
        self.min_dim, self.max_dim = int(min_dim or 0), int(max_dim or 0)
        self.padding, self.constant_value = bool(padding), constant_value
        if self.padding and not self.max_dim:
            raise ConfigError("padding needs max_dim, the side of the square")

    def __call__(self, sample: Sample) -> Sample:
        image, label = sample
        height, width = height_width(image)
        scale = max(1.0, self.min_dim / min(height, width)) if self.min_dim else 1.0
        if self.max_dim and round(max(height, width) * scale) > self.max_dim:
            scale = self.max_dim / max(height, width)
        array = to_array(image)
        if scale != 1:
            array = resize_keep_type(array, (round(height * scale), round(width * scale)))
        return self._pad(array, label) if self.padding else (array, label)

    def _pad(self, array: np.ndarray, label: Any) -> Sample:
        height, width = array.shape[:2]
        top, left = (self.max_dim - height) // 2, (self.max_dim - width) // 2
        square = np.full(
            (self.max_dim, self.max_dim, *array.shape[2:]), self.constant_value, dtype=array.dtype
        )
        square[top : top + height, left : left + width] = array
        if not isinstance(label, list | tuple):
            return square, label
        boxes = np.asarray(label[0], dtype=np.float32)
        if boxes.ndim != 2 or boxes.shape[1] != 4:
            raise DataError(f"a detection label starts with (n, 4) boxes, not {boxes.shape}")
        grown = boxes * np.asarray([height, width, height, width], np.float32)
        moved = (grown + np.asarray([top, left, top, left], np.float32)) / np.float32(self.max_dim)
        return square, (moved, *label[1:])


class ResizeWithAspectRatio(Transform):
    """Resizes so that a centre crop of height x width covers `scale` percent of the shorter side.

    Args:
        height: height of the later crop.
        width: width of the later crop.
        scale: percent of the shorter side that the crop covers.
        inter_pol: interpolation, as in Resize; 'area' is Pillow's box filter.
    """

    takes_pillow = True

    def __init__(
        self, height: int, width: int, scale: float = 87.5, inter_pol: str = "area"
    ) -> None:
        self.height, self.width, self.scale = height, width, float(scale)
        self.inter_pol = method_of(inter_pol)

    def on_image(self, image: Any) -> Any:
        have_height, have_width = height_width(image)
        height = int(100.0 * self.height / self.scale)
        width = int(100.0 * self.width / self.scale)
        if have_height > have_width:
            height = int(height * have_height / have_width)
        else:
            width = int(width * have_width / have_height)
        return resize(image, (height, width), self.inter_pol)
