"""In which order ops go back to float."""

from __future__ import annotations

import math

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Sensitivity


def fallback_order(space: TuningSpace, sensitivity: Sensitivity) -> list[OpKey]:
    """Ops that may be kept in float, the most sensitive first; unranked ones last, in order."""
    return sorted(able(space), key=lambda key: -weight(sensitivity, key))


def able(space: TuningSpace) -> list[OpKey]:
    """Ops that may go back to float by themselves, in the model's order."""
    leaders = (key for key in space.choices if key not in space.followers)
    return [key for key in leaders if space.float_config(key) is not None]


def is_fp32(space: TuningSpace, recipe: Recipe) -> bool:
    """Is this the FP32 model itself? Its score is known, and it is no answer to anybody's question.

    Followers fall in with their neighbours, whatever the recipe says of them.
    """
    leaders = (key for key in space.choices if key not in space.followers)
    return all(recipe.ops[key].precision == "fp32" for key in leaders)


def weight(sensitivity: Sensitivity, key: OpKey) -> float:
    """The sensitivity of an op as a number that can be compared: what is unknown is the worst."""
    value = sensitivity.get(key, 0.0)
    return math.inf if math.isnan(value) else value
