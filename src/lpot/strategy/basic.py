"""Everything INT8 first; then the fewest of the most harmful ops back to float."""

from __future__ import annotations

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext


def basic(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Bisect the ranking by harm: about log2(ops) evaluations instead of one per op.

    The ranking comes from calibration data and costs no evaluation. With n ops that may go back,
    the shortest prefix of the ranking that holds the bar is found, assuming that more float ops
    never hurt; each step that fails or passes halves what is left.
    """
    start = space.default()
    for samples in space.samples:
        start = Recipe(start.ops, samples, start.repairs)
        (trial,) = yield [start]
        if trial.met:
            return
    order = fallback_order(space, context)
    low, high = 1, len(order)
    held = False
    while low < high:
        middle = (low + high) // 2
        (trial,) = yield [space.with_float(start, order[:middle])]
        low, high = (low, middle) if trial.met else (middle + 1, high)
        held = held or trial.met
    if order and not held:
        yield [space.with_float(start, order)]


def fallback_order(space: TuningSpace, context: StrategyContext) -> list[OpKey]:
    """Ops that may go back to float, the most harmful first; unranked ones last, in model order."""
    harm = context.ranking()
    able = [
        key
        for key in space.choices
        if space.float_config(key) is not None and key not in space.followers
    ]
    return sorted(able, key=lambda key: -harm.get(key, 0.0))


# It ends by itself shortly after its first success: the loop lets it find the shortest prefix.
basic.settles = True  # type: ignore[attr-defined]
