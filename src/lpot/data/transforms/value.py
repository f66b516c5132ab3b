"""Transforms of an image's values and type: normalise, rescale, cast, to array and back."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError, did_you_mean
from lpot.data.image import convert, decode, is_pillow, to_array, to_pillow
from lpot.data.transforms.base import Sample, Transform, by_channel, numbers

CAST_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


class Normalize(Transform):
    """Subtracts the mean and divides by the standard deviation of each channel, giving floats.

    Args:
        mean: one number, or one for each channel.
        std: one number, or one for each channel; above zero.
    """

    fresh = True

    def __init__(self, mean: Any = (0.0,), std: Any = (1.0,)) -> None:
        self.mean = numbers(mean, "mean")
        self.std = numbers(std, "std")
        if min(self.std) < 1e-6:
            raise ConfigError(f"std should be above zero, not {self.std}")

    def on_image(self, image: Any) -> np.ndarray:
        array = to_array(image)
        kind = array.dtype if array.dtype.kind == "f" else np.dtype(np.float32)
        # Cast first, then in place: numpy is slower at both in one go.
        return self._shift(array.astype(kind))

    def on_fresh(self, sample: Sample) -> Sample:
        array, label = sample
        if array.dtype.kind != "f":
            return self(sample)
        return self._shift(array), label

    def _shift(self, array: np.ndarray) -> np.ndarray:
        for values, name, change in (
            (self.mean, "mean", np.subtract),
            (self.std, "std", np.divide),
        ):
            view, each = by_channel(array, values, name)
            change(view, each, out=view)
        return array


class Rescale(Transform):
    """Divides by 255, which maps 8-bit values to 0 to 1, as float32."""

    fresh = True

    def on_image(self, image: Any) -> np.ndarray:
        array = to_array(image).astype(np.float32)
        array /= np.float32(255)
        return array


class KerasRescale(Transform):
    """Divides by one number and subtracts another, as Keras' pretrained models expect.

    Args:
        rescale: the two numbers: [127.5, 1] maps 8-bit values to -1 to 1; None does nothing.
    """

    fresh = True

    def __init__(self, rescale: Any = None) -> None:
        self.rescale = [1.0, 0.0] if rescale is None else numbers(rescale, "rescale")
        if len(self.rescale) != 2 or self.rescale[0] == 0:
            raise ConfigError(
                f"rescale should be a divisor and a value to subtract, not {rescale!r}"
            )

    def on_image(self, image: Any) -> np.ndarray:
        array = to_array(image).astype(np.float32)
        array /= np.float32(self.rescale[0])
        array -= np.float32(self.rescale[1])
        return array


class ShiftRescale(Transform):
    """Maps 8-bit values to -1 to 1, as float32, and subtracts 1 from the class label."""

    fresh = True

    def __call__(self, sample: Sample) -> Sample:
        image, label = sample
        array = to_array(image).astype(np.float32)
        array -= np.float32(127.5)
        array /= np.float32(127.5)
        return array, label - 1


class Cast(Transform):
    """Converts the image to another type, without scaling the values.

    Args:
        dtype: the type's numpy name, such as float32, uint8 or int64.
    """

    fresh = True

    def __init__(self, dtype: str = "float32") -> None:
        if dtype not in CAST_TYPES:
            raise ConfigError(
                f"dtype {dtype!r} is not known{did_you_mean(str(dtype), CAST_TYPES) or ';'} "
                f"Known: {', '.join(CAST_TYPES)}"
            )
        self.dtype = dtype

    def on_image(self, image: Any) -> np.ndarray:
        return to_array(image).astype(self.dtype)


class ToArray(Transform):
    """Converts a Pillow image or a framework's tensor to a numpy array."""

    takes_pillow = True

    def on_image(self, image: Any) -> np.ndarray:
        return to_array(image)


class ToNDArray(ToArray):
    """The same as ToArray: the backend converts numpy arrays to its own."""


class ToTensor(Transform):
    """Moves the channels first and scales 8-bit values to 0 to 1, as float32.

    The result is a numpy array; the backend converts it to its own tensor.
    """

    fresh = True

    def on_image(self, image: Any) -> np.ndarray:
        array = to_array(image)
        if array.ndim == 2:
            array = array[:, :, np.newaxis]
        if array.ndim != 3:
            raise DataError(f"ToTensor takes height, width, channel; got the shape {array.shape}")
        first = np.array(array.transpose(2, 0, 1), order="C")
        if first.dtype != np.uint8:
            return first
        first = first.astype(np.float32)
        first /= np.float32(255)
        return first


class ToPILImage(Transform):
    """Converts an 8-bit array to a Pillow image, for a transform of yours that needs one."""

    takes_pillow = True
    gives_pillow = True

    def on_image(self, image: Any) -> Any:
        array = image if is_pillow(image) else to_array(image)
        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
            # A float image is taken as 0 to 1, as ToTensor leaves it.
            array = np.clip(np.rint(array * 255), 0, 255).astype(np.uint8)
        if isinstance(array, np.ndarray) and array.ndim == 3 and array.shape[2] not in (1, 3, 4):
            array = array.transpose(1, 2, 0)
        return to_pillow(array)


class AlignImageChannel(Transform):
    """Sets the number of channels: grey to `dim` copies, RGBA to RGB, RGB to grey.

    Args:
        dim: the desired number of channels, 1 to 4.
    """

    takes_pillow = True

    def __init__(self, dim: int = 3) -> None:
        if dim not in (1, 2, 3, 4):
            raise ConfigError(f"dim should be 1, 2, 3 or 4, not {dim!r}")
        self.dim = int(dim)

    def on_image(self, image: Any) -> Any:
        if is_pillow(image) and self.dim in (1, 3):
            return convert(image, {1: "L", 3: "RGB"}[self.dim])
        array = to_array(image)
        if array.ndim == 2:
            array = array[:, :, np.newaxis]
        if array.ndim < 3:
            raise DataError(f"an image of shape {array.shape} has no channels")
        channels = array.shape[-1]
        if channels == self.dim:
            return array
        if channels == 1:
            return np.repeat(array, self.dim, axis=-1)
        if (channels, self.dim) == (4, 3):
            return array[..., :3]
        if (channels, self.dim) == (3, 1):
            return grey(array)
        raise DataError(f"an image of {channels} channels can't be aligned to {self.dim}")


def grey(array: np.ndarray) -> np.ndarray:
    """Luma by the weights of ITU-R 601, rounded as Pillow does for 8-bit images."""
    if array.dtype == np.uint8:
        return to_array(convert(to_pillow(array), "L"))
    weights = np.asarray([0.299, 0.587, 0.114], dtype=np.float32)
    return (array @ weights)[..., np.newaxis].astype(array.dtype)


class QuantizedInput(Transform):
    """Quantizes the input for a model whose input is already 8 bit; without a scale, does nothing.

    Args:
        dtype: 'uint8' (128 is added) or 'int8'.
        scale: factor from image values to steps; unknown while tuning, so none by default.
    """

    def __init__(self, dtype: str, scale: float | None = None) -> None:
        if dtype not in ("uint8", "int8"):
            raise ConfigError(f"dtype should be 'uint8' or 'int8', not {dtype!r}")
        self.dtype = dtype
        self.scale = None if scale is None else float(scale)

    def on_image(self, image: Any) -> Any:
        if self.scale is None:
            return image
        array = to_array(image) * np.float32(self.scale)
        if self.dtype == "uint8":
            array = array + 128
        limits = np.iinfo(self.dtype)
        # Values beyond the range would wrap around in a bare cast.
        return np.clip(array, limits.min, limits.max).astype(self.dtype)


class DecodeImage(Transform):
    """Decodes an image file's bytes (jpeg, png, …) to 8-bit RGB."""

    takes_pillow = True

    def on_image(self, image: Any) -> Any:
        return decode(image, "sample") if isinstance(image, bytes) else image


class EncodeJpeg(Transform):
    """Encodes an 8-bit image as the bytes of a jpeg file of quality 95."""

    takes_pillow = True

    def on_image(self, image: Any) -> bytes:
        stream = io.BytesIO()
        picture = to_pillow(image)
        picture = picture if picture.mode == "L" else convert(picture, "RGB")
        picture.save(stream, format="JPEG", quality=95)
        return stream.getvalue()
