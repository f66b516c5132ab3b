"""What statistics say of ops' inputs: for which other ranges, or smoothing, are worth a look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lpot.backends.onnx.abilities import COMPUTE
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.passes.smooth_channels import PRODUCTS
from lpot.backends.onnx.plan import plan
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import Extremes
from lpot.core.ptq.smoothquant import smoothings
from lpot.core.recipe import OpKey, Recipe
from lpot.core.repairs import Repairs


def input_stats(
    graph: Graph, recipe: Recipe, stats: Mapping[str, TensorStats]
) -> dict[OpKey, TensorStats]:
    """Of all that read a quantized tensor, if a compute op is among them: they share its range."""
    drawn = plan(graph, recipe)
    keys = {key.name: key for key in recipe.low_ops}
    compute = {node.name for node in graph.nodes if node.op_type in COMPUTE}
    readers: dict[str, list[OpKey]] = {}
    for node in graph.nodes:
        if node.name in keys and node.input:
            readers.setdefault(node.input[0], []).append(keys[node.name])
    return {
        key: stats[root]
        for name in drawn.tensors
        if (root := drawn.roots.get(name, name)) in stats
        and any(key.name in compute for key in readers.get(name, ()))
        for key in readers[name]
    }


def useful_repairs(
    graph: Graph, recipe: Recipe, channels: Mapping[str, Extremes]
) -> Iterator[Repairs]:
    low = {key.name for key in recipe.low_ops}
    products = [node for node in graph.nodes if node.op_type in PRODUCTS and node.name in low]
    if any(n.input[0] in channels and channels[n.input[0]].outlies for n in products):
        yield from smoothings(recipe.repairs)
