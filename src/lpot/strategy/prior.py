"""What searches that draw or enumerate begin with: the sensitivity ranking, and basic's trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from lpot.core.recipe import OpConfig, OpKey
from lpot.core.space import TuningSpace
from lpot.core.strategy import Steps, StrategyContext
from lpot.core.trial import Trial
from lpot.strategy.fewest import fewest_float
from lpot.strategy.order import fallback_order

Chances = Mapping[OpKey, float]


def ranked_first(space: TuningSpace, context: StrategyContext) -> Steps[list[Trial]]:
    """The trials that `basic` makes: whoever begins with them is no worse at equal trials."""
    seen: list[Trial] = []
    part = fewest_float(space, replace(context, budget=False))
    batch = next(part, None)
    while batch:
        trials = yield batch
        seen += trials
        try:
            batch = part.send(trials)
        except StopIteration:
            break
    return seen


def float_chances(space: TuningSpace, context: StrategyContext) -> Chances:
    """How likely a draw puts each op in float: the more sensitive it is, the more; or nothing."""
    sensitivity = context.ranking()
    order = fallback_order(space, sensitivity) if sensitivity else []
    return {key: 1.0 - (place + 0.5) / len(order) for place, key in enumerate(order)}


def draw_config(
    key: OpKey, options: tuple[OpConfig, ...], chances: Chances, random: Random
) -> OpConfig:
    """One of the options: float by its chance, the others evenly."""
    floats = [option for option in options if option.is_float]
    low = [option for option in options if not option.is_float]
    if key not in chances or not floats or not low:
        return random.choice(options)
    return random.choice(floats if random.random() < chances[key] else low)
