"""Recipes that do not depend on each other's trials, in as many at a time as there are workers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from lpot.core.recipe import Recipe
from lpot.core.strategy import Proposals, StrategyContext


def side_by_side(recipes: Iterable[Recipe], context: StrategyContext) -> Proposals:
    waiting = iter(recipes)
    while batch := list(islice(waiting, context.workers)):
        yield batch
