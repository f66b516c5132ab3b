"""What statistics say of ops' inputs: for which other ranges, or repairs, are worth a look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.smooth_channels import outlying_inputs
from lpot.backends.tensorflow.passes.split_outliers import outlier_pairs
from lpot.backends.tensorflow.repair import patched, repair
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import Observations
from lpot.core.ptq.smoothquant import smoothings
from lpot.core.recipe import OpKey, Recipe
from lpot.core.repairs import Repairs


def input_stats(
    model: TensorflowModel, recipe: Recipe, observations: Observations
) -> dict[OpKey, TensorStats]:
    repaired = repair(model.prepared, recipe, observations)
    layers = [step.layer for step in repaired.plan().steps.values()]
    return {layer.key: repaired.stats[layer.x] for layer in layers if layer.x in repaired.stats}


def useful_repairs(
    model: TensorflowModel, recipe: Recipe, observations: Observations
) -> Iterator[Repairs]:
    """Outlier channels set apart, where that is possible; smoothed, if any are left."""
    prepared = repair(model.prepared, recipe, observations).prepared
    low = {key.name for key in recipe.low_ops}
    seen = observations.channels
    pairs = outlier_pairs(prepared, seen)
    split = any({pair.first.key.name, pair.second.key.name} <= low for pair in pairs)
    repairs = replace(recipe.repairs, outlier_split=split)
    if split:
        yield repairs
    after = patched(prepared, seen, split, None)
    readers = [layer for layers in outlying_inputs(after).values() for layer in layers]
    if any(after.twins.get(layer.key.name, layer.key.name) in low for layer in readers):
        yield from smoothings(repairs)
