"""Which ops hurt: the distance of the outputs with one op at a time in INT8, without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lpot.backends.mxnet.abilities import COMPUTE
from lpot.backends.mxnet.model import MxnetModel
from lpot.core.backend import Observations
from lpot.core.distance import distance
from lpot.core.progress import tracked
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.backends.mxnet import MxnetBackend


def rank(
    backend: MxnetBackend, model: MxnetModel, recipe: Recipe, observations: Observations
) -> dict[OpKey, float]:
    """Harm of each INT8 compute op: squared output error over squared output, summed."""
    if not observations.probe:
        return {}
    inputs = observations.probe[0]
    truth = backend.run(model, inputs)
    harm = {}
    for key in tracked([key for key in recipe.low_ops if key.kind in COMPUTE]):
        alone = recipe.with_float(other for other in recipe.low_ops if other != key)
        harm[key] = distance(truth, backend.run(backend.build(model, alone, observations), inputs))
    return harm
