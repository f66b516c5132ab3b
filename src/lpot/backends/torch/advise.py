"""SmoothQuant as advice: worth a look where calibration saw outlier channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.ranges import Observed
from lpot.core.recipe import Recipe


def smoothings(prepared: Prepared, recipe: Recipe, ranges: Observed) -> Iterator[Recipe]:
    """The recipe with smoothing, if there is anything to smooth.

    Weights that were trained with rounding stay as they are.
    """
    smooth = replace(recipe, repairs=replace(recipe.repairs, tensor_smoothing=True))
    if prepared.equalizes and ranges.smooth(prepared.equalized(ranges.factors), smooth):
        yield smooth
