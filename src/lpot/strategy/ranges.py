"""Other ranges for the same ops: no op goes back to float for them."""

from __future__ import annotations

from dataclasses import replace

from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.space import TuningSpace


def other_ranges(space: TuningSpace, recipe: Recipe) -> list[Recipe]:
    """The recipe with each other algorithm for the ranges of its activations."""
    algorithms = dict.fromkeys(
        option.activation.algorithm
        for options in space.choices.values()
        for option in options
        if not option.is_float and option.activation.algorithm is not None
    )
    variants = (_with_algorithm(space, recipe, word) for word in algorithms)
    return [variant for variant in dict.fromkeys(variants) if variant != recipe]


def _with_algorithm(space: TuningSpace, recipe: Recipe, algorithm: str) -> Recipe:
    changes: dict[OpKey, OpConfig] = {}
    for key in recipe.low_ops:
        wanted = replace(recipe.ops[key].activation, algorithm=algorithm)
        config = replace(recipe.ops[key], activation=wanted)
        if config in space.choices[key]:
            changes[key] = config
    return recipe.replace(changes)
