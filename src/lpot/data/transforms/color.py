"""Random changes of an image's colours."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpot.core.errors import ConfigError
from lpot.data.draw import generator
from lpot.data.image import to_pillow
from lpot.data.optional import require
from lpot.data.transforms.base import Transform, between, numbers


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random amounts, in a random order.

    Args:
        brightness: 0.2 draws a factor from 0.8 to 1.2; or the lowest and highest factor.
        contrast: the same for contrast.
        saturation: the same for saturation.
        hue: 0.1 draws a rotation of the colour wheel from -0.1 to 0.1; at most 0.5.
    """

    takes_pillow = True

    def __init__(
        self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
    ) -> None:
        self.brightness = _factors(brightness, "brightness")
        self.contrast = _factors(contrast, "contrast")
        self.saturation = _factors(saturation, "saturation")
        self.hue = _turns(hue)

    def on_image(self, image: Any) -> Any:
        enhance = require("PIL.ImageEnhance", "ColorJitter")
        picture = to_pillow(image)
        draw = generator()
        steps = [
            (enhance.Brightness, self.brightness),
            (enhance.Contrast, self.contrast),
            (enhance.Color, self.saturation),
            (None, self.hue),
        ]
        for number in draw.permutation(len(steps)):
            change, limits = steps[number]
            amount = float(draw.uniform(*limits))
            if change is None:
                picture = turn_hue(picture, amount) if limits != (0.0, 0.0) else picture
            elif limits != (1.0, 1.0):
                picture = change(picture).enhance(amount)
        return picture


def turn_hue(picture: Any, amount: float) -> Any:
    """The picture with its hue turned by `amount` of the whole circle."""
    if picture.mode != "RGB":
        return picture  # grey has no hue
    Image = require("PIL.Image", "ColorJitter")
    hue, saturation, value = picture.convert("HSV").split()
    # Eight-bit hue is a circle of 256 steps, so the overflow is meant.
    turned = np.asarray(hue) + np.uint8(int(amount * 255) % 256)
    parts = (Image.fromarray(turned), saturation, value)
    return Image.merge("HSV", parts).convert(picture.mode)


def _factors(value: Any, name: str) -> tuple[float, float]:
    found = numbers(value, name)
    low, high = (max(0.0, 1 - found[0]), 1 + found[0]) if len(found) == 1 else between(value, name)
    if low < 0 or (len(found) == 1 and found[0] < 0):
        raise ConfigError(f"{name} should not be negative: {value!r}")
    return low, high


def _turns(value: Any) -> tuple[float, float]:
    found = numbers(value, "hue")
    low, high = (-found[0], found[0]) if len(found) == 1 else between(value, "hue")
    if not -0.5 <= low <= high <= 0.5:
        raise ConfigError(f"hue should be between -0.5 and 0.5: {value!r}")
    return low, high
