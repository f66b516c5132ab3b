"""From a serialized TFRecord Example to (image, label)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from lpot.core.errors import DataError
from lpot.data.image import decode, height_width, to_array
from lpot.data.optional import require
from lpot.data.record import Features, parse_example
from lpot.data.transforms.base import Sample, Transform


def encoded_image(features: Features, key: str, origin: str) -> bytes:
    """The encoded image under `key`, or an error with the keys that are there."""
    found = features.get(key)
    if not isinstance(found, list) or not found:
        raise DataError(
            f"{origin}: the record has no {key!r}; "
            f"it has: {', '.join(sorted(features)) or 'nothing'}"
        )
    return found[0]


def imagenet_sample(features: Features, origin: str) -> Sample:
    """An ImageNet record: the decoded image and the class number."""
    label = np.asarray(features.get("image/class/label", ()))
    if label.size != 1 or label.dtype.kind != "i":
        raise DataError(f"{origin}: 'image/class/label' should be one whole number, not {label}")
    return decode(encoded_image(features, "image/encoded", origin), origin), int(label[0])


def coco_sample(features: Features, origin: str) -> Sample:
    """A detection record: the image and (boxes, class names, class numbers, image id)."""
    sides = [
        _numbers(features, f"image/object/bbox/{side}", np.float32, origin)
        for side in ("ymin", "xmin", "ymax", "xmax")
    ]
    names = features.get("image/object/class/text", [])
    if not isinstance(names, list):
        raise DataError(f"{origin}: 'image/object/class/text' holds numbers, expected names")
    numbers = _numbers(features, "image/object/class/label", np.int64, origin)
    counts = {len(side) for side in sides} | {len(part) for part in (names, numbers) if len(part)}
    if len(counts) != 1:
        raise DataError(f"{origin}: boxes and classes differ in number: {sorted(counts)}")
    if counts != {0} and not len(names) and not len(numbers):
        raise DataError(f"{origin}: the boxes have neither class names nor class numbers")
    source = features.get("image/source_id") or features.get("image/filename") or [b""]
    label = (
        np.stack(sides, axis=1),
        np.asarray(names, dtype=np.bytes_),
        numbers,
        np.asarray(source[0]),
    )
    return decode(encoded_image(features, "image/encoded", origin), origin), label


def _numbers(features: Features, key: str, kind: type[np.generic], origin: str) -> np.ndarray:
    found = features.get(key, [])
    if isinstance(found, list) and found:
        raise DataError(f"{origin}: {key!r} holds strings, expected numbers")
    return np.asarray(found, dtype=kind)


def voc_sample(features: Features, origin: str) -> Sample:
    """A segmentation record: the image and the class of each pixel (height, width, 1)."""
    image = decode(encoded_image(features, "image/encoded", origin), origin)
    mask = _mask(encoded_image(features, "image/segmentation/class/encoded", origin), origin)
    if mask.shape[:2] != height_width(image):
        raise DataError(
            f"{origin}: the image is {height_width(image)}, its segmentation {mask.shape[:2]} "
            "(height, width)"
        )
    return image, mask


def _mask(data: bytes, origin: str) -> np.ndarray:
    Image = require("PIL.Image", "decoding images")
    try:
        picture = Image.open(io.BytesIO(data))
        picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        why = "no image" if isinstance(error, Image.UnidentifiedImageError) else error
        raise DataError(f"{origin}: the segmentation can't be decoded: {why}") from error
    if picture.mode not in ("L", "P"):
        raise DataError(
            f"{origin}: the segmentation's mode is {picture.mode!r}, expected 'L' or 'P'"
        )
    # A palette image's indices are the classes; its colours are only for the eye.
    return to_array(picture)


class _Parse(Transform):
    """Parses raw records and lets (image, label) samples, already parsed, pass."""

    reader: Callable[[Features, str], Sample]

    def __call__(self, sample: Any) -> Sample:
        record = sample[0] if isinstance(sample, tuple) else sample
        if not isinstance(record, bytes):
            return sample  # type: ignore[no-any-return]
        return self.reader(parse_example(record), "record")


class ParseDecodeImagenet(_Parse):
    """Turns an ImageNet record into (image, class number); parsed samples are unchanged."""

    reader = staticmethod(imagenet_sample)


class ParseDecodeCoco(_Parse):
    """Turns a detection record into (image, (boxes, names, numbers, id)), if not yet parsed."""

    reader = staticmethod(coco_sample)


class ParseDecodeVoc(_Parse):
    """Turns a segmentation record into (image, class of each pixel); parsed ones are unchanged."""

    reader = staticmethod(voc_sample)
