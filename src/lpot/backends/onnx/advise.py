"""Recipes that may be nearer to FP32 than the usual one, guessed from statistics alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lpot.backends.onnx.abilities import COMPUTE
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.passes.smooth_channels import PRODUCTS
from lpot.backends.onnx.plan import plan
from lpot.core.backend import Observations
from lpot.core.histogram import TensorStats
from lpot.core.ptq.ranges import NOISY, better_algorithm, noise
from lpot.core.ptq.smoothquant import ALPHAS
from lpot.core.recipe import OpConfig, OpKey, Recipe


def advise(graph: Graph, recipe: Recipe, observations: Observations) -> Iterator[Recipe]:
    """Other ranges for tensors with long tails, or ranges found while running for noisy ones; then
    smoothing, where channels are outliers."""
    for changes in (
        _other_ranges(graph, recipe, observations.tensors),
        _dynamic(graph, recipe, observations.tensors),
    ):
        if changes:
            yield recipe.replace(changes)
    seen = observations.channels
    low = {key.name for key in recipe.low_ops}
    products = [node for node in graph.nodes if node.op_type in PRODUCTS]
    inputs = {node.input[0] for node in products if node.name in low}
    if any(name in inputs and found.outlies for name, found in seen.items()):
        for alpha in ALPHAS:
            yield replace(recipe, repairs=replace(recipe.repairs, smoothing=alpha))


def _other_ranges(
    graph: Graph, recipe: Recipe, stats: Mapping[str, TensorStats]
) -> dict[OpKey, OpConfig]:
    """For tensors whose range minmax wastes on a few values: the algorithm with the least error."""
    drawn = plan(graph, recipe)
    keys = {key.name: key for key in recipe.low_ops}
    compute = {node.name for node in graph.nodes if node.op_type in COMPUTE}
    readers: dict[str, list[OpKey]] = {}
    for node in graph.nodes:
        if node.name in keys and node.input and recipe.ops[keys[node.name]].mode == "static":
            readers.setdefault(node.input[0], []).append(keys[node.name])
    changes: dict[OpKey, OpConfig] = {}
    for name in drawn.tensors:
        found = stats.get(drawn.roots.get(name, name))
        if found is None or not any(key.name in compute for key in readers.get(name, ())):
            continue
        best = better_algorithm(found)
        for key in readers[name] if best is not None else ():
            activation = replace(recipe.ops[key].activation, algorithm=best)
            changes[key] = replace(recipe.ops[key], activation=activation)
    return changes


def _dynamic(
    graph: Graph, recipe: Recipe, stats: Mapping[str, TensorStats]
) -> dict[OpKey, OpConfig]:
    """Matrix products whose input a range fixed beforehand keeps badly."""
    keys = {key.name: key for key in recipe.low_ops}
    changes: dict[OpKey, OpConfig] = {}
    for node in graph.nodes:
        key = keys.get(node.name) if node.op_type in PRODUCTS else None
        if (
            key is None
            or recipe.ops[key].mode != "static"
            or noise(stats.get(node.input[0])) < NOISY
        ):
            continue
        activation = replace(recipe.ops[key].activation, algorithm="minmax")
        changes[key] = replace(recipe.ops[key], activation=activation, mode="dynamic")
    return changes
