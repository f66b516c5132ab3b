"""A second format of weights, for prompts alone: what it would save, and the recipe of it.

The best format of a weight may differ between generating tokens and reading prompts. A decoder can
hold both; that costs memory, so that it is offered and not done unasked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Tradeoff, Tradeoffs
from lpot.strategy.mixed_bits import path_of

TOKEN, PROMPT = 0, 1  # phases of a tradeoff
WORTH = 0.85  # of the time for a prompt, from which on a second format is not worth a word


@dataclass(frozen=True)
class Second:
    """The formats for prompts, beside the ones that a search has found."""

    recipe: Recipe
    time: float  # of a prompt's products, as a share of what they take without it
    size: int  # bytes of the weights that are stored twice


def second_format(
    space: TuningSpace, tradeoffs: Tradeoffs, best: Recipe, share: float = 1.0
) -> Second | None:
    """The fastest formats for prompts whose error is at most this share of the best's.

    None where they would save little. Tables stay what they are: looking up takes no time.
    """
    products = {
        key: options
        for key, options in tradeoffs.items()
        if options and all(len(option.phases) > PROMPT for option in options)
        if any(option.phases[PROMPT] for option in options)
    }
    chosen = _chosen(products, best)
    if not products or len(chosen) < len(products):
        return None
    by_prompt = {
        key: [replace(option, time=option.phases[PROMPT], size=0) for option in options]
        for key, options in products.items()
    }
    path = path_of(space, by_prompt)
    error = share * sum(option.error for option in chosen.values())
    wanted = path.recipe(path.first_below(error)).ops
    recipe = best.replace({key: wanted[key] for key in products})
    found = _chosen(products, recipe)
    before, after = (
        sum(option.phases[PROMPT] for option in each.values()) for each in (chosen, found)
    )
    if not before or after > WORTH * before:
        return None
    twice = sum(found[key].size for key in found if found[key].config != chosen[key].config)
    return Second(recipe, after / before, twice)


def _chosen(tradeoffs: Tradeoffs, recipe: Recipe) -> dict[OpKey, Tradeoff]:
    return {
        key: option
        for key, options in tradeoffs.items()
        for option in options
        if option.config == recipe.ops.get(key)
    }
