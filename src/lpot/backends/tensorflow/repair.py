"""What a recipe is built on: the prepared graph with its channels repaired, and its statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.passes.simulate_ops import rounded_weight
from lpot.backends.tensorflow.passes.smooth_channels import smooth_channels
from lpot.backends.tensorflow.passes.split_outliers import split_outliers
from lpot.backends.tensorflow.plan import Plan, Shapes, plan
from lpot.backends.tensorflow.prepare import Patched, Prepared
from lpot.backends.tensorflow.structure.affine import is_transposed
from lpot.backends.tensorflow.structure.layers import Step
from lpot.core.numerics.observations import Extremes, Observations
from lpot.core.numerics.rounding import TensorStats
from lpot.core.ptq.bias_correction import output_shift
from lpot.core.recipe import OpConfig, OpKey, Recipe

# -- Bias correction on TensorFlow: a layer's weight as the algorithm reads it.


def bias_shifts(
    prepared: Prepared, drawn: Plan, means: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Op → by how much rounding moves the mean of each of its outputs."""
    found: dict[str, np.ndarray] = {}
    for name, step in drawn.steps.items():
        mean = means.get(step.layer.x)
        if mean is not None:
            found[name] = _shift(prepared, step, drawn.taken(step.layer), mean)
    return found


def _shift(prepared: Prepared, step: Step, taken: Format, mean: np.ndarray) -> np.ndarray:
    """Worked out once for the same weight and means; trials share it."""
    key = (step.layer.node, step.config.weight, taken.dtype, mean.tobytes())
    if key not in prepared.weights:
        real = prepared.net.constant(step.layer.weight)
        assert real is not None
        error = rounded_weight(prepared, step, taken) - real
        prepared.weights[key] = _moved(prepared, step, error, mean).astype(np.float32)
    shift: np.ndarray = prepared.weights[key]
    return shift


def _moved(prepared: Prepared, step: Step, error: np.ndarray, mean: np.ndarray) -> np.ndarray:
    node = prepared.net.nodes[step.layer.node]
    if node.op == "MatMul":
        return output_shift(error if is_transposed(node) else error.T, mean)
    if node.op == "DepthwiseConv2dNative":  # height, width, channels, outputs of each of them
        outputs = np.moveaxis(error, (2, 3), (0, 1))
        return output_shift(outputs.reshape(-1, 1, *outputs.shape[2:]), mean, groups=mean.size)
    return output_shift(np.moveaxis(error, (3, 2), (0, 1)), mean)


@dataclass(frozen=True, eq=False)
class Repaired:
    """The recipe has a line for each op that a repair has added."""

    prepared: Prepared
    recipe: Recipe
    stats: Mapping[str, TensorStats]
    shapes: Shapes
    means: Mapping[str, np.ndarray]  # by tensor and channel; empty where biases are not corrected

    def plan(self, recipe: Recipe | None = None) -> Plan:
        """The plan of the recipe, or of another one for the same graph."""
        drawn = plan(self.prepared, recipe or self.recipe, self.stats, self.shapes)
        return replace(drawn, shifts=bias_shifts(self.prepared, drawn, self.means))


def repair(prepared: Prepared, recipe: Recipe, observations: Observations) -> Repaired:
    """Equalized as calibration found it; split and smoothed as the recipe says."""
    equalized = prepared.equalized(observations.factors)
    shapes = Shapes(observations.shapes)
    means = observations.means if recipe.repairs.bias_correction else {}
    split, alpha = recipe.repairs.outlier_split, recipe.repairs.smoothing
    if alpha is None and not split:
        return Repaired(equalized, recipe, observations.tensors, shapes, means)
    patch = patched(equalized, observations.channels, split, alpha)
    stats = dict(observations.tensors)
    for name, found in patch.fresh.items():
        stats[name] = TensorStats.empty()
        stats[name].update(found.smoothed(np.ones(1)))
    seen = {**shapes.seen}
    for name, other in patch.like.items():
        if other in seen:
            seen[name] = seen[other]
    means = {**means, **_spread_means(means, patch)}
    return Repaired(patch.prepared, _spread(recipe, patch), stats, Shapes(seen), means)


def _spread_means(means: Mapping[str, np.ndarray], patch: Patched) -> dict[str, np.ndarray]:
    """The means of tensors that repairs have made of others."""
    found = {
        name: means[source] * factors
        for name, (source, factors) in patch.scaled.items()
        if source in means
    }
    picked = {
        name: means[source][channels]
        for name, (source, channels) in patch.picked.items()
        if source in means
    }
    return {**found, **picked}


def patched(
    prepared: Prepared, seen: Mapping[str, Extremes], split: bool, alpha: float | None
) -> Patched:
    """Made once for the same repairs: trials share the graph and its quantized weights.

    Only the last is kept: each holds weights of its own, and a search stays with one.
    """
    values = tuple((name, one.low.tobytes(), one.high.tobytes()) for name, one in seen.items())
    key = (split, alpha, values)
    if key not in prepared.patched:
        made = Patched(prepared, seen)
        if split:
            made = split_outliers(made)
        if alpha is not None:
            made = smooth_channels(made, alpha)
        prepared.patched.clear()
        prepared.patched[key] = made
    return prepared.patched[key]


def _spread(recipe: Recipe, patch: Patched) -> Recipe:
    """The recipe for the ops of the repaired graph.

    Of a tensor that a repair has made only the ends of its range are known.
    """
    configs = {key.name: config for key, config in recipe.ops.items()}
    ops: dict[OpKey, OpConfig] = dict(recipe.ops)
    for name, layer in patch.prepared.layers.items():
        config = configs.get(patch.twins.get(name, name))
        if config is None:
            continue
        if layer.x in patch.fresh and not config.is_float:
            config = replace(config, activation=replace(config.activation, algorithm="minmax"))
        ops[layer.key] = config
    return replace(recipe, ops=ops)
