"""In which order ops go back to float."""

from __future__ import annotations

import math

from lpot.core.recipe import OpKey
from lpot.core.space import TuningSpace
from lpot.core.strategy import Harm


def fallback_order(space: TuningSpace, harm: Harm) -> list[OpKey]:
    """Ops that may go back to float, the most harmful first; unranked ones last, in model order."""
    return sorted(able(space), key=lambda key: -weight(harm, key))


def able(space: TuningSpace) -> list[OpKey]:
    """Ops that may go back to float by themselves, in the model's order."""
    leaders = (key for key in space.choices if key not in space.followers)
    return [key for key in leaders if space.float_config(key) is not None]


def weight(harm: Harm, key: OpKey) -> float:
    """The harm of an op as a number that can be compared: what can't be told is the worst."""
    value = harm.get(key, 0.0)
    return math.inf if math.isnan(value) else value
