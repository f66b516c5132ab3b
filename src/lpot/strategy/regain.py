"""Ops return from float to low precision as long as the bar holds."""

from __future__ import annotations

from collections.abc import Iterable

from lpot.core.recipe import OpKey, Recipe
from lpot.core.strategy import Steps
from lpot.core.trial import Trial


def return_singly(start: Recipe, best: Trial, keys: Iterable[OpKey]) -> Steps[Trial]:
    """One op after the other, in this order; one that is needed in float keeps no other there."""
    for key in keys:
        if best.recipe.ops[key].is_float:
            (trial,) = yield [returned(start, best.recipe, [key])]
            best = trial if trial.met else best
    return best


def returned(start: Recipe, recipe: Recipe, keys: Iterable[OpKey]) -> Recipe:
    """The recipe with these ops as they were at the start."""
    return recipe.replace({key: start.ops[key] for key in keys})
