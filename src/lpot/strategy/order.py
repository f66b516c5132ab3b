"""In which order ops go back to float."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Sensitivity

STEP = 4.0  # times, between gains that are told apart
CLEAR = 0.01  # of the largest gain: less is none, and no loss either


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


def told_apart(gains: Mapping[OpKey, float]) -> dict[OpKey, float]:
    """Gains in steps of four times, as shares of the largest; losses that are clear as -1.

    Times vary with what else the machine does, and a recipe must not: ops that gain about the same
    gain the same, and the ranking by sensitivity decides between them.

    >>> told_apart({"a": 8e-3, "b": 9e-3, "c": 1e-3, "d": 1e-9, "e": -1e-6, "f": -2e-3})
    {'a': 1.0, 'b': 1.0, 'c': 0.0625, 'd': 0.0, 'e': 0.0, 'f': -1.0}
    """
    largest = max(map(abs, gains.values()), default=0.0)
    return {key: _step(gain / largest) if largest else 0.0 for key, gain in gains.items()}


def _step(share: float) -> float:
    if abs(share) < CLEAR:
        return 0.0
    return -1.0 if share < 0.0 else float(STEP ** round(math.log(share, STEP)))


def weight(sensitivity: Sensitivity, key: OpKey) -> float:
    """The sensitivity of an op as a number that can be compared: what is unknown is the worst."""
    value = sensitivity.get(key, 0.0)
    return math.inf if math.isnan(value) else value
