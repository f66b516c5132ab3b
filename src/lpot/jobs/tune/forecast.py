"""How long a search can become, found by playing it through with made-up scores."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from lpot.core.limits import Limits
from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Strategy, StrategyContext
from lpot.core.trial import Score, State, Trial
from lpot.core.tune import guarded

ENOUGH = 1000  # proposals looked at in one play; past this the search is called long
PATIENCE = 0.5  # seconds; a play that is long by then is not played to its end
LONG = 20  # proposals


def most_trials(strategy: Strategy, space: TuningSpace, limits: Limits) -> int:
    """The most trials the strategy can ask for, as far as a few plays can tell.

    A strategy does no work of its own, so playing costs no evaluation. In each play the bar is
    held once so many ops are back in FP32, from none at all to more than there are. A strategy that
    goes on until a limit stops it is not played.
    """
    theirs = not getattr(strategy, "__module__", "").startswith("lpot.")
    # A user's strategy may do more than propose: it is not played, either.
    if theirs or getattr(strategy, "endless", False):
        return 1 if limits.performance_only else limits.max_trials
    able = sum(
        key not in space.followers and space.float_config(key) is not None for key in space.choices
    )
    end = time.monotonic() + PATIENCE
    longest = 0
    # The bar that is never held comes first: it alone nearly tells.
    for needed in dict.fromkeys((len(space.choices) + 1, able, 1, 2, able // 3, able // 2, 0)):
        if not longest or time.monotonic() < end:
            play = partial(_play, strategy, space, limits, needed, end)
            found = guarded(play)  # a forecast is no reason to fail
            longest = max(longest, limits.max_trials if isinstance(found, Exception) else found)
    return longest


def _play(strategy: Strategy, space: TuningSpace, limits: Limits, needed: int, end: float) -> int:
    tried: dict[str, Trial] = {}
    settles = getattr(strategy, "settles", False)
    most = 1 if limits.performance_only else limits.max_trials
    proposals = strategy(space, StrategyContext(budget=limits.timeout > 0))
    batch: Sequence[Recipe] | None = next(proposals, None)
    looked = 0
    while batch and looked < ENOUGH:
        looked += len(batch)
        trials = [_made_up(recipe, needed, space) for recipe in batch]
        tried |= {trial.recipe.digest: trial for trial in trials}
        met = any(trial.met for trial in trials) and not settles and limits.timeout == 0
        if met or len(tried) >= most:
            break
        if time.monotonic() > end + (0.0 if looked >= LONG else PATIENCE):
            return most
        try:
            batch = proposals.send(trials)
        except StopIteration:
            break
    proposals.close()
    return min(len(tried), most)


def _made_up(recipe: Recipe, needed: int, space: TuningSpace) -> Trial:
    back = sum(key not in space.followers for key in recipe.float_ops)
    met = back >= needed
    return Trial(1, recipe, State.DONE, Score(1.0 if met else 0.5), met)
