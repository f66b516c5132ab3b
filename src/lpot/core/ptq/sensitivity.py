"""Sensitivity analysis: how far the outputs move with one op at a time in low precision.

Needs no labels. Layer by layer as in "ZeroQ: A Novel Zero Shot Quantization Framework" (2020), with
squared errors in place of the divergence, so that it serves outputs of any kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lpot.core.batch import Inputs
from lpot.core.numerics.observations import Observations
from lpot.core.progress import tracked
from lpot.core.ptq.distance import (
    Measure,
    distance,
    few,
    mean_distance,
    unshifted_distance,
)
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.core.backend import Backend

SECONDS = 20.0  # what a ranking may cost: large models are compared on fewer samples
COMMON = 2.0  # times the rest of the error, from which on what scores have in common misleads

Key = TypeVar("Key")


def sensitivity(
    backend: Backend[Any],
    model: Any,
    recipe: Recipe,
    observations: Observations,
    measure: Measure = distance,
) -> dict[OpKey, float]:
    """By op, the distance of the outputs from FP32's when it alone is as the recipe says."""
    keys = leaders(backend, model, recipe)
    if not observations.probe or not keys:
        return {}
    probe = affordable(lambda inputs: backend.run(model, inputs), observations.probe, len(keys))
    singly = {key: alone(recipe, key) for key in keys}
    return errors(backend, model, singly, observations, probe, measure)


def unshifted(
    backend: Backend[Any], model: Any, recipe: Recipe, observations: Observations
) -> dict[OpKey, float]:
    """The sensitivity but for what all scores of a sample have in common.

    Empty where that is no great part of the error: both rankings say the same then.
    """
    if not observations.probe or not recipe.low_ops:
        return {}
    probe = few(observations.probe)
    truth = backend.run_few(model, probe)
    built = backend.build(model, recipe, observations)
    found = backend.run_few(built, probe)
    built.close()
    whole, rest = (mean_distance(truth, found, by) for by in (distance, unshifted_distance))
    if whole < COMMON * rest:
        return {}
    return sensitivity(backend, model, recipe, observations, unshifted_distance)


def errors(
    backend: Backend[Any],
    model: Any,
    recipes: Mapping[Key, Recipe],
    observations: Observations,
    probe: Sequence[Inputs],
    measure: Measure = distance,
) -> dict[Key, float]:
    """Of each recipe, the mean distance of its model's outputs from FP32's on these batches."""
    truth = backend.run_few(model, probe)
    found: dict[Key, float] = {}
    for key in tracked(list(recipes)):
        built = backend.build(model, recipes[key], observations)
        found[key] = mean_distance(truth, backend.run_few(built, probe), measure)
        built.close()
    return found


def leaders(backend: Backend[Any], model: Any, recipe: Recipe) -> list[OpKey]:
    """The low-precision ops that are so for their own sake, not for their neighbours'."""
    ops = backend.inspect(model, "auto").ops
    return [key for key in recipe.low_ops if key not in ops or not ops[key].follower]


def alone(recipe: Recipe, key: OpKey) -> Recipe:
    """The recipe with this op alone in low precision."""
    return recipe.with_float(other for other in recipe.low_ops if other != key)


def affordable(
    run: Callable[[Inputs], Any], probe: Iterable[Inputs], runs: int, seconds: float = SECONDS
) -> list[Inputs]:
    """As many samples of the probe as so many runs on it may take."""
    batches = few(probe)
    began = time.perf_counter()
    run(batches[0])
    spent = (time.perf_counter() - began) * runs
    share = seconds / spent if spent > 0.0 else float(len(batches))
    return batches[: int(share)] if share >= 1.0 else [first_samples(batches[0], share)]


def first_samples(inputs: Inputs, share: float) -> Inputs:
    """The first samples of a batch, at least one.

    >>> [part.shape for part in first_samples((np.zeros((8, 3)), np.zeros(())), 0.5)]
    [(4, 3), ()]
    """
    values = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
    size = next((len(value) for value in values if np.ndim(value)), 1)
    count = max(1, int(size * share))
    cut = [value[:count] if np.ndim(value) and len(value) == size else value for value in values]
    return dict(zip(inputs, cut, strict=True)) if isinstance(inputs, Mapping) else tuple(cut)
