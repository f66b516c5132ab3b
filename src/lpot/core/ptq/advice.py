"""Recipes that may be nearer to FP32 than the usual one, guessed from statistics alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lpot.core.numerics.histogram import TensorStats
from lpot.core.ptq.ranges import NOISY, better_algorithm, noise
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.space import Capability

Stats = Mapping[OpKey, TensorStats]  # of the inputs of low-precision ops


def advise(recipe: Recipe, inputs: Stats, capability: Capability) -> Iterator[Recipe]:
    """Other ranges for inputs with long tails; then ranges found while running, for noisy ones."""
    for changes in (_other_ranges(recipe, inputs), _dynamic(recipe, inputs, capability)):
        if changes:
            yield recipe.replace(changes)


def _other_ranges(recipe: Recipe, inputs: Stats) -> dict[OpKey, OpConfig]:
    """For inputs whose range minmax wastes on a few values: the algorithm with the least error."""
    changes: dict[OpKey, OpConfig] = {}
    for key, stats in _static(recipe, inputs):
        best = better_algorithm(stats)
        if best is not None:
            config = recipe.ops[key]
            changes[key] = replace(config, activation=replace(config.activation, algorithm=best))
    return changes


def _dynamic(recipe: Recipe, inputs: Stats, capability: Capability) -> dict[OpKey, OpConfig]:
    """For inputs that a range fixed beforehand keeps badly, where there is a dynamic kernel."""
    changes: dict[OpKey, OpConfig] = {}
    for key, stats in _static(recipe, inputs):
        choices = capability.ops[key].choices if key in capability.ops else ()
        dynamic = [choice for choice in choices if choice.mode == "dynamic"]
        if not dynamic or noise(stats) < NOISY:
            continue
        alike = [choice for choice in dynamic if choice.weight == recipe.ops[key].weight]
        changes[key] = (alike or dynamic)[0]
    return changes


def _static(recipe: Recipe, inputs: Stats) -> Iterator[tuple[OpKey, TensorStats]]:
    for key in recipe.low_ops:
        if key in inputs and recipe.ops[key].mode == "static":
            yield key, inputs[key]
