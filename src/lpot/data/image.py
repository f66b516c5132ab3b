"""Images on their way through the pipeline: decode, change mode, Pillow to numpy and back.

An image stays a Pillow image as long as transforms can use it as one, so that decode and resize
cost no copy; whatever leaves the pipeline is a numpy array in height, width, channel order.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import as_array, is_tensor
from lpot.core.errors import DataError
from lpot.data.optional import require

# Modes that become 8-bit RGB without losing range; the rest (16-bit, 32-bit, float) are refused.
EIGHT_BIT_MODES = ("RGB", "L", "P", "PA", "RGBA", "RGBX", "RGBa", "LA", "La", "CMYK", "YCbCr", "1")


def read(path: str | Path, mode: str = "RGB") -> Any:
    """The image file as a Pillow image of `mode`; a damaged or odd file is an error by name."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such image file") from error
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror or error}") from error
    return decode(data, str(path), mode)


def decode(data: bytes, origin: str, mode: str = "RGB") -> Any:
    """Encoded bytes (jpeg, png, …) as a Pillow image of `mode`; `origin` names them in errors."""
    Image = require("PIL.Image", "decoding images")
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
    except Image.UnidentifiedImageError as error:
        what = f"it begins with {data[:8]!r}" if data else "the file is empty"
        raise DataError(f"{origin}: can't be decoded as an image: {what}") from error
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        Image.DecompressionBombError,
    ) as error:
        raise DataError(f"{origin}: can't be decoded as an image: {error}") from error
    return image if image.mode == mode else convert(image, mode, origin)


def convert(image: Any, mode: str, origin: str = "image") -> Any:
    """A Pillow image in another mode, refusing those whose range 8 bits can't hold."""
    if image.mode == mode:
        return image
    if image.mode not in EIGHT_BIT_MODES:
        raise DataError(
            f"{origin}: the image mode {image.mode!r} can't become {mode!r} without loss; "
            f"accepted: {', '.join(EIGHT_BIT_MODES)}. Convert the file to 8 bits per channel first"
        )
    return image.convert(mode)


def is_pillow(image: object) -> bool:
    """Whether this is a Pillow image, asked without importing Pillow."""
    return hasattr(image, "getbands") and hasattr(image, "resize")


def to_array(image: Any) -> np.ndarray:
    """Any image as a numpy array; a Pillow image becomes height, width, channel."""
    if isinstance(image, np.ndarray):
        return image
    if is_pillow(image):
        array = np.asarray(image)
        return array if array.ndim == 3 else array[:, :, np.newaxis]
    if is_tensor(image):
        return as_array(image)
    if isinstance(image, bytes | str):
        raise DataError(
            f"{image[:16]!r} is not an image yet: decode it first, use ParseDecodeImagenet or "
            "similar for a record, DecodeImage for the bytes of a file"
        )
    if isinstance(image, list | tuple) or np.isscalar(image):
        return np.asarray(image)
    raise DataError(
        f"an image of type {type(image).__name__} can't become an array; "
        "expected a numpy array, a Pillow image or a framework's tensor"
    )


def to_pillow(image: Any) -> Any:
    """An 8-bit array (height, width, 1 or 3 or 4 channels) as a Pillow image."""
    if is_pillow(image):
        return image
    array = to_array(image)
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise DataError(
            f"an array of {array.dtype} and shape {array.shape} is not an 8-bit image; "
            "expected uint8 and height, width, channel"
        )
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim == 3 and array.shape[2] not in (3, 4):
        raise DataError(f"an image of shape {array.shape} should have 1, 3 or 4 channels, last")
    return require("PIL.Image", "handling images").fromarray(np.ascontiguousarray(array))


def height_width(image: Any) -> tuple[int, int]:
    """The size of a Pillow image or of an array in height, width(, channel) order."""
    if is_pillow(image):
        width, height = image.size
        return height, width
    shape = to_array(image).shape
    if len(shape) not in (2, 3):
        raise DataError(
            f"an image of shape {shape} should be height, width or height, width, channel"
        )
    if 0 in shape:
        raise DataError(f"an image of shape {shape} is empty")
    return int(shape[0]), int(shape[1])
