"""The two resize rules: Pillow's (area-aware, for most) and TensorFlow's (two taps an axis)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError, did_you_mean
from lpot.data.image import is_pillow, to_array, to_pillow
from lpot.data.optional import require

METHODS = {
    "nearest": "NEAREST",
    "bilinear": "BILINEAR",
    "bicubic": "BICUBIC",
    "lanczos": "LANCZOS",
    "box": "BOX",
    "area": "BOX",
    "hamming": "HAMMING",
}


def method_of(name: str) -> str:
    """A known interpolation's name, checked."""
    if name not in METHODS:
        raise ConfigError(
            f"interpolation {name!r} is not known{did_you_mean(str(name), METHODS) or ';'} "
            f"Known: {', '.join(METHODS)}"
        )
    return name


def resize(image: Any, size: tuple[int, int], method: str = "bilinear") -> Any:
    """Pillow's resize to (height, width); an 8-bit array stays 8 bit, a float array stays float."""
    Image = require("PIL.Image", "resizing images")
    how = getattr(Image.Resampling, METHODS[method])
    height, width = size
    if is_pillow(image):
        # Palettes and one-bit images can't be interpolated.
        flat = image.mode in ("P", "1") and method != "nearest"
        picture = image.convert("RGB") if flat else image
        return picture if picture.size == (width, height) else picture.resize((width, height), how)
    array = to_array(image)
    if array.dtype == np.uint8 and (array.ndim == 2 or array.shape[2] in (1, 3, 4)):
        out = np.asarray(to_pillow(array).resize((width, height), how))
        return out.reshape(height, width, *array.shape[2:])
    if array.dtype.kind not in "fiu" or array.ndim not in (2, 3):
        raise DataError(f"an array of {array.dtype} and shape {array.shape} can't be resized")
    planes = array.reshape(*array.shape[:2], -1).astype(np.float32)
    out = np.empty((height, width, planes.shape[2]), dtype=np.float32)
    for channel in range(planes.shape[2]):
        plane = Image.fromarray(np.ascontiguousarray(planes[:, :, channel]))
        out[:, :, channel] = np.asarray(plane.resize((width, height), how))
    return _as_type(out, array.dtype).reshape(height, width, *array.shape[2:])


def resize_two_taps(
    array: np.ndarray, size: tuple[int, int], part: tuple[int, int, int, int] | None = None
) -> np.ndarray:
    """Bilinear between the two nearest pixel centres of each axis, as tf.image.resize does.

    The result is float32 to the last bit of TensorFlow's rule: no smoothing when shrinking. `part`
    (top, left, height, width) computes only that piece of the resized image.
    """
    top, left, height, width = part or (0, 0, *size)
    first_row, second_row, down = _taps(array.shape[0], size[0], top, height)
    first_column, second_column, across = _taps(array.shape[1], size[1], left, width)
    channels = math.prod(array.shape[2:])
    # A row of the image is read once, though up to two rows of the result need it.
    needed, places = np.unique(np.concatenate([first_row, second_row]), return_inverse=True)
    flat = np.ascontiguousarray(array).reshape(array.shape[0], -1)
    flat = flat if len(needed) == len(flat) else flat[needed]
    rows = _columns(flat, first_column, channels)
    step = _columns(flat, second_column, channels)
    step -= rows
    step *= np.repeat(across, channels)
    rows += step
    upper: np.ndarray = rows[places[:height]]
    lower = rows[places[height:]]
    lower -= upper
    lower *= down[:, np.newaxis]
    upper += lower
    return upper.reshape(height, width, *array.shape[2:])


def _columns(flat: np.ndarray, columns: np.ndarray, channels: int) -> np.ndarray:
    """Chosen columns of rows in which each pixel takes `channels` places, as float32."""
    places = (columns[:, np.newaxis] * channels + np.arange(channels)).reshape(-1)
    return np.take(flat, places, axis=1, mode="clip").astype(np.float32)


def _taps(
    have: int, want: int, start: int, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For output pixels from `start` on: the two source pixels and the weight of the second."""
    scale = np.float32(have) / np.float32(want)
    pixel = np.arange(start, start + count, dtype=np.float32)
    place = (pixel + np.float32(0.5)) * scale - np.float32(0.5)
    floor = np.floor(place)
    first = np.maximum(floor, 0).astype(np.intp)
    second = np.minimum(np.ceil(place), have - 1).astype(np.intp)
    return first, second, place - floor


def _as_type(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(dtype)


def resize_keep_type(image: Any, size: tuple[int, int]) -> np.ndarray:
    """`resize_two_taps`, rounded back to the image's own type."""
    array = to_array(image)
    return _as_type(resize_two_taps(array, size), array.dtype)
