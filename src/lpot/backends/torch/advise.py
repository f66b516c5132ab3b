"""Recipes that may be nearer to FP32 than the usual one, guessed from statistics alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lpot.backends.torch.ranges import Observed, inlet_name
from lpot.backends.torch.workshop import Workshop
from lpot.core.doubt import NOISY, better_algorithm, noise
from lpot.core.histogram import TensorStats
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.smooth import EACH


def advise(
    workshop: Workshop, recipe: Recipe, stats: Mapping[str, TensorStats], ranges: Observed
) -> Iterator[Recipe]:
    """Other ranges for inputs with long tails, or ranges found while running for noisy ones; then
    smoothing, where channels are outliers."""
    for changes in (_other_ranges(recipe, stats), _dynamic(workshop, recipe, stats)):
        if changes:
            yield recipe.replace(changes)
    smooth = replace(recipe, repairs=(*recipe.repairs, EACH))
    if _smooths(workshop, smooth, ranges):
        yield smooth


def _smooths(workshop: Workshop, recipe: Recipe, ranges: Observed) -> bool:
    """Is there anything to smooth? Weights that were trained with rounding stay as they are."""
    return workshop.equalizes and bool(ranges.smooth(workshop.equalized(ranges.factors), recipe))


def _other_ranges(recipe: Recipe, stats: Mapping[str, TensorStats]) -> dict[OpKey, OpConfig]:
    """For inputs whose range minmax wastes on a few values: the algorithm with the least error."""
    changes: dict[OpKey, OpConfig] = {}
    for key in recipe.low_ops:
        config, found = recipe.ops[key], stats.get(inlet_name(key.name))
        best = better_algorithm(found) if found is not None and config.mode == "static" else None
        if best is not None:
            changes[key] = replace(config, activation=replace(config.activation, algorithm=best))
    return changes


def _dynamic(
    workshop: Workshop, recipe: Recipe, stats: Mapping[str, TensorStats]
) -> dict[OpKey, OpConfig]:
    """Linears whose input a range fixed beforehand keeps badly."""
    changes: dict[OpKey, OpConfig] = {}
    for key in recipe.low_ops:
        config, spec = recipe.ops[key], workshop.sites[key.name].spec
        if config.mode != "static" or not spec.dynamic:
            continue
        if noise(stats.get(inlet_name(key.name))) >= NOISY:
            activation = replace(config.activation, algorithm="minmax", scheme="asym")
            changes[key] = replace(config, activation=activation, mode="dynamic")
    return changes
