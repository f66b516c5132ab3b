"""Which ops hurt: how far the outputs move with one op at a time in INT8, without labels."""

from __future__ import annotations

import time

from lpot.backends.torch.build import build
from lpot.backends.torch.ranges import Observed
from lpot.backends.torch.run import run
from lpot.backends.torch.workshop import Workshop
from lpot.core.backend import Observations
from lpot.core.batch import Inputs
from lpot.core.distance import distance
from lpot.core.progress import tracked
from lpot.core.recipe import OpKey, Recipe

SECONDS = 20.0  # what a ranking may cost: large models are compared on fewer samples


def rank(workshop: Workshop, recipe: Recipe, observations: Observations) -> dict[OpKey, float]:
    """Harm of each low-precision op: squared error over squared output, summed over outputs."""
    if not observations.probe or not recipe.low_ops:
        return {}
    ranges = Observed(observations)
    workshop = workshop.equalized(ranges.factors)
    inputs = _affordable(workshop, observations.probe[0], len(recipe.low_ops))
    truth = run(workshop.fresh(), inputs)
    harm: dict[OpKey, float] = {}
    for key in tracked(recipe.low_ops):
        alone = Recipe({key: recipe.ops[key]}, recipe.samples, recipe.repairs)
        trial = build(workshop, alone, ranges)
        harm[key] = 0.0 if key in trial.skipped else distance(truth, run(trial.module, inputs))
    return harm


def _affordable(workshop: Workshop, inputs: Inputs, runs: int) -> Inputs:
    """As many samples of the batch as the time allows."""
    began = time.perf_counter()
    run(workshop.fresh(), inputs)
    cost = (time.perf_counter() - began) * runs
    share = SECONDS / cost if cost > SECONDS else 1.0
    if share == 1.0:
        return inputs
    values = list(inputs if isinstance(inputs, tuple) else inputs.values())
    size = next((len(value) for value in values if getattr(value, "ndim", 0)), 1)
    count = max(1, int(size * share))
    cut = [
        value[:count] if getattr(value, "ndim", 0) and len(value) == size else value
        for value in values
    ]
    return tuple(cut) if isinstance(inputs, tuple) else dict(zip(inputs, cut, strict=True))
