"""`quant_level`: how far the search may go from FP32, whatever the strategy."""

from __future__ import annotations

from typing import Literal

from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, Strategy, StrategyContext
from lpot.strategy.conservative import conservative
from lpot.strategy.fewest import default_first

Level = Literal["auto", 0, 1]


def at_level(level: Level, strategy: Strategy) -> Strategy:
    """0 is conservative; 1 the strategy itself; auto the one after the other."""
    if level == 1:
        return strategy
    return conservative if level == 0 else _Both(strategy)


class _Both:
    """Everything low first; if that misses the bar, conservative; if that does, the strategy.

    Conservative succeeds when at least one kind of op is low in the end.
    """

    settles = True

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.needs = getattr(strategy, "needs", None)
        self.endless = getattr(strategy, "endless", False)

    def __call__(self, space: TuningSpace, context: StrategyContext) -> Proposals:
        first = yield from default_first(space, context)
        if first.met and not context.budget:
            return
        held = False
        proposals = conservative(space, context)
        batch = next(proposals, None)
        while batch:
            trials = yield batch
            held = held or any(trial.met and trial.recipe.low_ops for trial in trials)
            try:
                batch = proposals.send(trials)
            except StopIteration:
                break
        if not held or context.budget:
            yield from self.strategy(space, context)
