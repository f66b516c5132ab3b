"""With time left: the most ops in low precision with which the bar holds, by what is likeliest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Steps, StrategyContext
from lpot.core.trial import Trial
from lpot.strategy.belief import Belief, Floats, Masks
from lpot.strategy.bracket import steps_for
from lpot.strategy.fewest import Fallbacks
from lpot.strategy.order import able, told_apart, weight

WORTH_A_LOOK = 1e-3  # seconds a batch in FP32; below, calling kernels costs more than they do
HOPELESS = 0.02  # chance of meeting the bar, below which a set is not tried


def improve(space: TuningSpace, context: StrategyContext, found: Fallbacks) -> Steps[Trial | None]:
    """Go on from where the ranking was cut, to a better model than the best, or to a first one.

    Next comes the set of ops with the largest expected improvement: how likely it meets the bar,
    times what it has more in low precision than the best. It ends with 5 + 2 log2(ops) trials in
    all, or one more for each op that is in float, if that is more.
    """
    keys = able(space)
    if not keys:
        return found.best
    sensitivity = context.ranking()
    belief = Belief([weight(sensitivity, key) for key in keys], context.seed)
    worth = _worth(keys, told_apart(context.gains()) if is_timed(context) else {})
    known: set[bytes] = set()
    for trial in found.trials:
        low = _low(trial.recipe, keys)
        known.add(low.tobytes())
        belief.learn(low, trial.met)
    best = found.best
    most = 5 + 2 * steps_for(len(keys)) - len(found.trials)
    for _ in range(max(most, len(found.back))):
        least = 0.0 if best is None else float(worth @ _low(best.recipe, keys))
        chosen = _likeliest(belief, _candidates(belief, keys, found, best), worth, least, known)
        if chosen is None:
            break
        known.add(chosen.tobytes())
        floats = [key for key, is_low in zip(keys, chosen, strict=True) if not is_low]
        (trial,) = yield [space.with_float(found.start, floats)]
        belief.learn(chosen, trial.met)
        best = trial if trial.met else best
    return best


def is_timed(context: StrategyContext) -> bool:
    """Was FP32 timed, and is it slow enough for the times of single ops to mean something?"""
    return context.latency is not None and context.latency > WORTH_A_LOOK


def _likeliest(
    belief: Belief, sets: Masks, worth: Floats, least: float, known: set[bytes]
) -> Masks | None:
    """The set with the largest expected improvement; None where there is no hope of any."""
    gain = sets @ worth - least
    fresh = np.array([low.any() and low.tobytes() not in known for low in sets], bool)
    sets, gain = sets[fresh & (gain > 1e-9)], gain[fresh & (gain > 1e-9)]
    if not len(sets):
        return None
    chance = belief.probability(sets)
    at = int(np.argmax(np.where(chance >= HOPELESS, chance * gain, 0.0)))
    return sets[at] if chance[at] >= HOPELESS else None


def _candidates(
    belief: Belief, keys: Sequence[OpKey], found: Fallbacks, best: Trial | None
) -> Masks:
    """What the particles think of, every cut of the ranking, the best with one op more low."""
    places = {key: at for at, key in enumerate(keys)}
    cuts = np.ones((len(found.order), len(keys)), bool)
    for count in range(1, len(found.order) + 1):
        cuts[count - 1, [places[key] for key in found.order[:count]]] = False
    sets = [belief.sets(), cuts]
    if best is not None:
        low = _low(best.recipe, keys)
        sets.append(low | np.eye(len(keys), dtype=bool)[~low])
    return np.concatenate(sets)


def _low(recipe: Recipe, keys: Sequence[OpKey]) -> Masks:
    return np.array([not recipe.ops[key].is_float for key in keys], bool)


def _worth(keys: Sequence[OpKey], gains: Mapping[OpKey, float]) -> Floats:
    """What an op is worth in low precision: its share of the ops and of the time that all save."""
    seconds = np.array([max(gains.get(key, 0.0), 0.0) for key in keys])
    total = float(seconds.sum())
    share = seconds / total if total > 0 else np.zeros(len(keys))
    return np.full(len(keys), 1.0 / len(keys)) + share
