"""Recipes that may be nearer to FP32 than the usual one, guessed from statistics alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.smooth_channels import outlying_inputs
from lpot.backends.tensorflow.passes.split_outliers import outlier_pairs
from lpot.backends.tensorflow.repair import Repaired, patched, repair
from lpot.core.backend import Observations
from lpot.core.ptq.ranges import better_algorithm
from lpot.core.ptq.smoothquant import ALPHAS
from lpot.core.recipe import OpConfig, OpKey, Recipe


def advise(model: TensorflowModel, recipe: Recipe, observations: Observations) -> Iterator[Recipe]:
    """Other ranges for tensors with long tails; outlier channels set apart or smoothed."""
    if not recipe.low_ops:
        return
    repaired = repair(model.prepared, recipe, observations)
    changes = _other_ranges(repaired)
    if changes:
        yield recipe.replace(changes)
    low = {key.name for key in recipe.low_ops}
    seen = observations.channels
    pairs = outlier_pairs(repaired.prepared, seen)
    split = any({pair.first.key.name, pair.second.key.name} <= low for pair in pairs)
    repairs = replace(recipe.repairs, outlier_split=split)
    if split:
        yield replace(recipe, repairs=repairs)
    after = patched(repaired.prepared, seen, split, None)
    readers = [unit for units in outlying_inputs(after).values() for unit in units]
    if any(after.twins.get(unit.key.name, unit.key.name) in low for unit in readers):
        for alpha in ALPHAS:
            yield replace(recipe, repairs=replace(repairs, smoothing=alpha))


def _other_ranges(repaired: Repaired) -> dict[OpKey, OpConfig]:
    """For tensors whose range minmax wastes on a few values: the algorithm with the least error."""
    changes: dict[OpKey, OpConfig] = {}
    for step in repaired.plan().steps.values():
        found = repaired.stats.get(step.unit.x)
        best = better_algorithm(found) if found is not None else None
        if best is not None:
            activation = replace(step.config.activation, algorithm=best)
            changes[step.unit.key] = replace(step.config, activation=activation)
    return changes
