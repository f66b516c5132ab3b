"""Recipes that may be nearer to FP32 than the usual one, guessed from statistics alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lpot.backends.onnx.abilities import ALGORITHMS, COMPUTE
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.passes.smooth_channels import PRODUCTS, Extremes
from lpot.backends.onnx.plan import plan
from lpot.core.backend import Observations
from lpot.core.histogram import TensorStats
from lpot.core.recipe import OpConfig, OpKey, Recipe

WORTH = 4.0  # times less squared error, from which on another range is worth a look
NOISY = 1e-3  # noise of an input that static ranges should not make
TYPICAL = 75.0  # per cent of the values that are not larger than the typical one
ALPHAS = (0.35, 0.5, 0.65, 0.8)
SMOOTH = "smooth="  # the repair's name; its alpha stands behind it
CHANNELS = "channels/"  # where extremes by channel lie among the extras of observations


def advise(graph: Graph, recipe: Recipe, observations: Observations) -> Iterator[Recipe]:
    """Other ranges for tensors with long tails, or ranges found while running for noisy ones; then
    smoothing, where channels are outliers."""
    for changes in (
        _other_ranges(graph, recipe, observations.tensors),
        _dynamic(graph, recipe, observations.tensors),
    ):
        if changes:
            yield recipe.replace(changes)
    seen = extremes(observations)
    low = {key.name for key in recipe.low_ops if key.kind in PRODUCTS}
    inputs = {node.input[0] for node in graph.nodes if node.name in low}
    if any(name in inputs and found.outlies for name, found in seen.items()):
        for alpha in ALPHAS:
            yield replace(recipe, repairs=(*recipe.repairs, f"{SMOOTH}{alpha}"))


def extremes(observations: Observations) -> dict[str, Extremes]:
    return {
        name.removeprefix(CHANNELS): Extremes(value[0], value[1])
        for name, value in observations.extra.items()
        if name.startswith(CHANNELS)
    }


def smoothing(recipe: Recipe) -> float | None:
    """The alpha of the recipe's smoothing, None where it has none."""
    found = [item.removeprefix(SMOOTH) for item in recipe.repairs if item.startswith(SMOOTH)]
    return float(found[-1]) if found else None


def _other_ranges(
    graph: Graph, recipe: Recipe, stats: Mapping[str, TensorStats]
) -> dict[OpKey, OpConfig]:
    """For tensors whose range minmax wastes on a few values: the algorithm with the least error."""
    drawn = plan(graph, recipe)
    keys = {key.name: key for key in recipe.low_ops}
    readers: dict[str, list[OpKey]] = {}
    for node in graph.nodes:
        if node.name in keys and node.input and recipe.ops[keys[node.name]].mode == "static":
            readers.setdefault(node.input[0], []).append(keys[node.name])
    changes: dict[OpKey, OpConfig] = {}
    for name in drawn.tensors:
        found = stats.get(drawn.roots.get(name, name))
        if found is None or not any(key.kind in COMPUTE for key in readers.get(name, ())):
            continue
        best = _least_error(found)
        for key in readers[name] if best is not None else ():
            activation = replace(recipe.ops[key].activation, algorithm=best)
            changes[key] = replace(recipe.ops[key], activation=activation)
    return changes


def _dynamic(
    graph: Graph, recipe: Recipe, stats: Mapping[str, TensorStats]
) -> dict[OpKey, OpConfig]:
    """Matrix products whose input a range fixed beforehand keeps badly."""
    keys = {key.name: key for key in recipe.low_ops if key.kind in PRODUCTS}
    changes: dict[OpKey, OpConfig] = {}
    for node in graph.nodes:
        key = keys.get(node.name)
        if key is None or recipe.ops[key].mode != "static" or noise(stats, node.input[0]) < NOISY:
            continue
        activation = replace(recipe.ops[key].activation, algorithm="minmax")
        changes[key] = replace(recipe.ops[key], activation=activation, mode="dynamic")
    return changes


def noise(stats: Mapping[str, TensorStats], name: str) -> float:
    """A tensor's own quantization noise as a share of what most of its values are like.

    Not of its power: a few loud values would hide the noise that they bring upon all others.
    """
    seen = stats.get(name)
    if seen is None:
        return 0.0
    _, typical = seen.range("percentile", symmetric=True, percentile=TYPICAL)
    return seen.error(*seen.range("minmax")) / typical**2 if typical else 0.0


def _least_error(stats: TensorStats) -> str | None:
    errors = {word: stats.error(*stats.range(word)) for word in ALGORITHMS}
    best = min(errors, key=lambda word: errors[word])
    return best if errors["minmax"] > WORTH * errors[best] else None
