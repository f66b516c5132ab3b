"""What a transform is, how several are chained, and how their arguments are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.data.image import is_pillow, to_array

Sample = tuple[Any, Any]


class Transform:
    """Takes (image, label) and returns (image, label).

    One that leaves the label alone says in `on_image` what happens to the image, an array of
    height, width, channel.
    """

    # Whether it also works on Pillow images, which saves a conversion after decoding.
    takes_pillow = False
    gives_pillow = False  # on purpose: the next one gets it, whatever it is
    # Whether the result is a new array that nobody else holds, so the next may change it in place.
    fresh = False

    def __call__(self, sample: Sample) -> Sample:
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            kind = "bytes of a record" if isinstance(sample, bytes) else type(sample).__name__
            raise DataError(
                f"{type(self).__name__} takes (image, label), not {kind}: a raw record needs "
                "ParseDecodeImagenet or similar first"
            )
        image, label = sample
        return self.on_image(image), label

    def on_image(self, image: Any) -> Any:
        return image

    def on_fresh(self, sample: Sample) -> Sample:
        """The same as a call, with an array that may be changed in place."""
        return self(sample)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({shown})"


class Compose(Transform):
    """Applies transforms one after another.

    Args:
        transform_list: the transforms, in order; a user's own are called with (array, label).
    """

    takes_pillow = True

    def __init__(self, transform_list: Sequence[Callable[[Sample], Sample]]) -> None:
        self.transform_list = list(transform_list)

    def __call__(self, sample: Sample) -> Sample:
        return chain(self.transform_list, sample)


def chain(transforms: Sequence[Callable[[Sample], Sample]], sample: Sample) -> Sample:
    """The sample after all transforms."""
    before = Transform()
    for step in transforms:
        ours = step if isinstance(step, Transform) else None
        if not (before.gives_pillow or (ours and ours.takes_pillow)):
            sample = finished(sample)
        sample = ours.on_fresh(sample) if ours and before.fresh else step(sample)
        before = ours or Transform()
    return sample


def steps_of(transform: Callable[[Sample], Sample] | None) -> Sequence[Callable[[Sample], Sample]]:
    """The transforms one by one."""
    if isinstance(transform, Compose):
        return transform.transform_list
    return [] if transform is None else [transform]


def finished(sample: Sample) -> Sample:
    """The sample with an array for its image."""
    if isinstance(sample, tuple) and len(sample) == 2 and is_pillow(sample[0]):
        return to_array(sample[0]), sample[1]
    return sample


def apply(transform: Callable[[Sample], Sample] | None, sample: Sample) -> Sample:
    """Run a transform (or none) over a sample and hand back an array where an image came in."""
    return finished(chain(steps_of(transform), sample))


def numbers(value: Any, name: str) -> list[float]:
    """A list of numbers, written as a list, one number, or a text like '0.485, 0.456'.

    >>> numbers("1, 2.5", "mean")
    [1.0, 2.5]
    """
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    items = list(value) if isinstance(value, list | tuple | np.ndarray) else [value]
    try:
        return [float(item) for item in items]
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name} should be a number or a list of numbers, not {value!r}"
        ) from error


def size_of(value: Any, name: str = "size") -> tuple[int, int]:
    """A (height, width) from one number (a square) or two.

    >>> size_of(224), size_of([224, 192])
    ((224, 224), (224, 192))
    """
    found = numbers(value, name)
    if len(found) not in (1, 2) or any(item < 1 or item != int(item) for item in found):
        raise ConfigError(
            f"{name} should be one positive whole number or two (height, width), not {value!r}"
        )
    return int(found[0]), int(found[-1])


def between(value: Any, name: str) -> tuple[float, float]:
    """A (lowest, highest) pair."""
    found = numbers(value, name)
    if len(found) != 2 or found[0] > found[1]:
        raise ConfigError(f"{name} should be two numbers, lowest first, not {value!r}")
    return found[0], found[1]


def by_channel(image: np.ndarray, values: list[float], name: str) -> tuple[np.ndarray, np.ndarray]:
    """A view of the image and the values shaped to meet its channels, last or first."""
    count = len(values)
    array = np.asarray(values, dtype=np.float32)
    if count == 1 or (image.ndim and image.shape[-1] == count):
        if count > 1 and image.ndim == 3 and image.size and image.flags.c_contiguous:
            # Numpy walks three channels at a time ten times slower than whole rows.
            return image.reshape(len(image), -1), np.tile(array, image.shape[1])
        return image, array
    if image.ndim == 3 and image.shape[0] == count:
        return image, array.reshape(count, 1, 1)
    raise ConfigError(
        f"{name} has {count} values, but the image of shape {image.shape} has no axis of {count} "
        "channels, last or first; give one value, or one for each channel"
    )
