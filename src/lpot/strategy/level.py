"""`quant_level`: how far the search may go from FP32, whatever the strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from lpot.core.space import TuningSpace
from lpot.core.strategy import Policy, Proposals, StrategyContext
from lpot.strategy.conservative import conservative
from lpot.strategy.fewest import default_first

Level = Literal["auto", 0, 1]


def at_level(level: Level, strategy: Policy) -> Policy:
    """0 is conservative; 1 the strategy itself; auto the one after the other."""
    if level == 1:
        return strategy
    return conservative if level == 0 else _both(strategy)


def _both(strategy: Policy) -> Policy:
    """Everything low first; if that misses the bar, conservative; if that does, the strategy.

    Conservative succeeds when at least one kind of op is low in the end.
    """

    def propose(space: TuningSpace, context: StrategyContext) -> Proposals:
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
            yield from strategy(space, context)

    def most(space: TuningSpace, budget: bool) -> int | None:
        first, then = conservative.most(space, budget), strategy.most(space, budget)
        return None if first is None or then is None else len(space.samples) + first + then

    return replace(strategy, propose=propose, settles=True, most=most)
