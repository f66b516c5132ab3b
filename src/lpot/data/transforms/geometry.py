"""Transforms that move pixels without resampling: crop, flip, pad, transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.data.draw import generator
from lpot.data.image import height_width, is_pillow, to_array
from lpot.data.transforms.base import Transform, numbers, size_of

PAD_MODES = ("constant", "edge", "reflect", "symmetric")


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """A rectangle of the image; one that reaches outside is refused with both sizes."""
    have_height, have_width = height_width(image)
    inside = 0 <= top <= top + height <= have_height and 0 <= left <= left + width <= have_width
    if not inside or height < 1 or width < 1:
        raise DataError(
            f"a crop of {height}x{width} at row {top}, column {left} does not fit into an image of "
            f"{have_height}x{have_width} (height x width)"
        )
    if is_pillow(image):
        return image.crop((left, top, left + width, top + height))
    return to_array(image)[top : top + height, left : left + width]


class CropToBoundingBox(Transform):
    """Crops the image to a given rectangle.

    Args:
        offset_height: first row kept.
        offset_width: first column kept.
        target_height: number of rows.
        target_width: number of columns.
    """

    takes_pillow = True

    def __init__(
        self, offset_height: int, offset_width: int, target_height: int, target_width: int
    ) -> None:
        self.offset_height = offset_height
        self.offset_width = offset_width
        self.target_height = target_height
        self.target_width = target_width

    def on_image(self, image: Any) -> Any:
        return crop(
            image, self.offset_height, self.offset_width, self.target_height, self.target_width
        )


class CenterCrop(Transform):
    """Crops the centre of the image; an odd pixel is left over at the bottom or right.

    Args:
        size: one number for a square, or height and width.
    """

    takes_pillow = True

    def __init__(self, size: Any) -> None:
        self.size = size_of(size)

    def on_image(self, image: Any) -> Any:
        height, width = height_width(image)
        top, left = (height - self.size[0]) // 2, (width - self.size[1]) // 2
        return crop(image, top, left, *self.size)


class PaddedCenterCrop(Transform):
    """Crops a centred square whose side is size / (size + crop_padding) of the shorter side.

    Args:
        size: side of the image the network will see; height and width must be equal.
        crop_padding: pixels to leave out around it, counted at that size.
    """

    takes_pillow = True

    def __init__(self, size: Any, crop_padding: int = 0) -> None:
        height, width = size_of(size)
        if height != width:
            raise ConfigError(f"PaddedCenterCrop makes squares; got the size {height}x{width}")
        self.size = height
        self.crop_padding = int(crop_padding)

    def on_image(self, image: Any) -> Any:
        height, width = height_width(image)
        side = int(self.size / (self.size + self.crop_padding) * min(height, width))
        return crop(image, (height - side + 1) // 2, (width - side + 1) // 2, side, side)


class RandomCrop(Transform):
    """Crops a rectangle at a random place, drawn from the loader's seed.

    Args:
        size: one number for a square, or height and width.
    """

    takes_pillow = True

    def __init__(self, size: Any) -> None:
        self.size = size_of(size)

    def on_image(self, image: Any) -> Any:
        height, width = height_width(image)
        rows, columns = max(height - self.size[0], 0), max(width - self.size[1], 0)
        draw = generator()
        top, left = int(draw.integers(rows + 1)), int(draw.integers(columns + 1))
        return crop(image, top, left, *self.size)


class RandomHorizontalFlip(Transform):
    """Flips left and right with a probability of one half."""

    def on_image(self, image: Any) -> Any:
        return flip(image, axis=1) if generator().random() < 0.5 else image


class RandomVerticalFlip(Transform):
    """Flips top and bottom with a probability of one half."""

    def on_image(self, image: Any) -> Any:
        return flip(image, axis=0) if generator().random() < 0.5 else image


def flip(image: Any, axis: int) -> np.ndarray:
    """The image mirrored along rows (0) or columns (1)."""
    return np.ascontiguousarray(np.flip(to_array(image), axis=axis))


class Transpose(Transform):
    """Reorders the axes of the image.

    Args:
        perm: the new order, such as [2, 0, 1] for channels first.
    """

    def __init__(self, perm: Any) -> None:
        self.perm = tuple(int(item) for item in numbers(perm, "perm"))
        if sorted(self.perm) != list(range(len(self.perm))):
            raise ConfigError(f"perm should hold each axis once, such as [2, 0, 1], not {perm!r}")

    def on_image(self, image: Any) -> np.ndarray:
        array = to_array(image)
        if array.ndim != len(self.perm):
            raise DataError(f"perm {list(self.perm)} does not fit an image of shape {array.shape}")
        return np.ascontiguousarray(array.transpose(self.perm))


class TransposeLastChannel(Transpose):
    """Moves the channels from the last to the first axis."""

    def __init__(self) -> None:
        super().__init__([2, 0, 1])


class Pad(Transform):
    """Adds a border.

    Args:
        padding: pixels on all sides; or left/right and top/bottom; or left, top, right, bottom.
        fill: value of a constant border, one number or one for each channel.
        padding_mode: 'constant', 'edge', 'reflect' or 'symmetric'.
    """

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        sides = [int(item) for item in numbers(padding, "padding")]
        if len(sides) not in (1, 2, 4) or min(sides) < 0:
            raise ConfigError(f"padding should be 1, 2 or 4 numbers from 0 up, not {padding!r}")
        if padding_mode not in PAD_MODES:
            raise ConfigError(f"padding_mode should be one of {PAD_MODES}, not {padding_mode!r}")
        self.padding = (sides * (4 // len(sides)))[:4]
        self.fill = numbers(fill, "fill")
        self.padding_mode = padding_mode

    def on_image(self, image: Any) -> np.ndarray:
        array = to_array(image)
        height, width = height_width(array)
        left, top, right, bottom = self.padding
        widths = [(top, bottom), (left, right)] + [(0, 0)] * (array.ndim - 2)
        if self.padding_mode != "constant":
            bordered: np.ndarray = np.pad(array, widths, mode=self.padding_mode)  # type: ignore[call-overload]
            return bordered
        shape = (height + top + bottom, width + left + right, *array.shape[2:])
        out = np.empty(shape, dtype=array.dtype)
        out[...] = np.asarray(self.fill, dtype=array.dtype)
        out[top : top + height, left : left + width] = array
        return out
