"""Whole ImageNet recipes in one transform, by TensorFlow's rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpot.core.errors import ConfigError
from lpot.data.draw import generator
from lpot.data.image import height_width, to_array
from lpot.data.transforms.base import Transform, by_channel, numbers
from lpot.data.transforms.geometry import crop, flip
from lpot.data.transforms.resample import resize_two_taps

# The standard deviation of ImageNet's pixels in 0 to 1, red, green, blue.
IMAGENET_STD = (0.229, 0.224, 0.225)


def as_rgb(image: Any) -> np.ndarray:
    """The image as an array of three channels; grey is repeated."""
    array = to_array(image)
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array


class BilinearImagenet(Transform):
    """Centre crop, bilinear resize, values scaled to -1 to 1, then (value - mean) * scale.

    Args:
        height: height of the result.
        width: width of the result.
        central_fraction: share of each side that is kept; 0 keeps all.
        mean_value: subtracted from each channel after scaling to -1 to 1.
        scale: factor applied last.
    """

    takes_pillow = True

    def __init__(
        self,
        height: int,
        width: int,
        central_fraction: float = 0.875,
        mean_value: Any = (0.0, 0.0, 0.0),
        scale: float = 1.0,
    ) -> None:
        if not 0 <= central_fraction <= 1:
            raise ConfigError(
                f"central_fraction should be between 0 and 1, not {central_fraction!r}"
            )
        self.height, self.width = height, width
        self.central_fraction = float(central_fraction)
        self.mean_value = numbers(mean_value, "mean_value")
        self.scale = float(scale)

    def on_image(self, image: Any) -> np.ndarray:
        if self.central_fraction:
            height, width = height_width(image)
            top = int((height - height * self.central_fraction) / 2)
            left = int((width - width * self.central_fraction) / 2)
            image = crop(image, top, left, height - 2 * top, width - 2 * left)
        array = as_rgb(image)
        if array.dtype == np.uint8:
            # TensorFlow scales by the float nearest to 1/255 and does so before it resizes.
            array = array.astype(np.float32) * np.float32(1 / 255)
        if self.height and self.width:
            array = resize_two_taps(array, (self.height, self.width))
        array = (array - np.float32(0.5)) * np.float32(2)
        view, mean = by_channel(array, self.mean_value, "mean_value")
        view -= mean
        array *= np.float32(self.scale)
        return array


class ResizeCropImagenet(Transform):
    """Bilinear resize of the shorter side, crop, then (value - mean) * scale.

    With `std_value`, or with means that all lie in 0 to 1, the values are first divided by 255,
    then (value - mean) / std, and the channels go first: the ONNX Runtime variant in LPOT 1.x.

    Args:
        height: height of the result.
        width: width of the result.
        random_crop: crop at a random place instead of the centre.
        resize_side: length of the shorter side before the crop.
        random_flip_left_right: flip with a probability of one half.
        mean_value: subtracted from each channel.
        scale: factor applied last.
        std_value: standard deviation of each channel; see above.
        data_format: 'channels_last' or 'channels_first'; by default as described above.
    """

    def __init__(
        self,
        height: int,
        width: int,
        random_crop: bool = False,
        resize_side: int = 256,
        random_flip_left_right: bool = False,
        mean_value: Any = (0.0, 0.0, 0.0),
        scale: float = 1.0,
        std_value: Any = None,
        data_format: str | None = None,
    ) -> None:
        self.height, self.width, self.resize_side = height, width, resize_side
        self.random_crop, self.random_flip_left_right = random_crop, random_flip_left_right
        self.mean_value = numbers(mean_value, "mean_value")
        self.scale = float(scale)
        # A mean of 0.485 on pixels of 0 to 255 makes no sense: it speaks of pixels in 0 to 1.
        small = 0 < max(self.mean_value) <= 1 and min(self.mean_value) >= 0 and self.scale == 1
        self.unit = std_value is not None or small
        self.std_value = numbers(IMAGENET_STD if std_value is None else std_value, "std_value")
        self.data_format = data_format or ("channels_first" if self.unit else "channels_last")
        if self.data_format not in ("channels_last", "channels_first"):
            raise ConfigError(
                f"data_format should be 'channels_last' or 'channels_first', not {data_format!r}"
            )
        if resize_side < max(height, width):
            raise ConfigError(
                f"resize_side {resize_side} is shorter than the crop of {height}x{width}"
            )

    def on_image(self, image: Any) -> np.ndarray:
        height, width = height_width(image)
        side = np.float32(self.resize_side) / np.float32(min(height, width))
        size = (int(np.rint(np.float32(height) * side)), int(np.rint(np.float32(width) * side)))
        array = self._part(as_rgb(image), size)
        if self.unit:
            array /= np.float32(255)
        view, mean = by_channel(array, self.mean_value, "mean_value")
        view -= mean
        if self.unit:
            view, std = by_channel(array, self.std_value, "std_value")
            view /= std
        array *= np.float32(self.scale)
        first = self.data_format == "channels_first"
        return np.ascontiguousarray(array.transpose(2, 0, 1)) if first else array

    def _part(self, array: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """The crop of the image resized to `size`; only the crop is computed."""
        rows, columns = size[0] - self.height, size[1] - self.width
        top, left = rows // 2, columns // 2
        draw = generator()
        if self.random_crop:
            top, left = int(draw.integers(rows + 1)), int(draw.integers(columns + 1))
        part = resize_two_taps(array, size, (top, left, self.height, self.width))
        if self.random_flip_left_right and draw.random() < 0.5:
            part = flip(part, axis=1)
        return part
