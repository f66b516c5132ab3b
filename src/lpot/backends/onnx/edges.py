"""Tensors between ops that only follow: who must leave INT8 for such a tensor to stay float.

A tensor is quantized for its producer and for all who read it. Where compute ops make or read it,
each of them alone shows its sensitivity; where followers hand it on to followers, as the sums of
a residual stream do, only a group of compute ops can set it free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lpot.backends.onnx.abilities import ARITHMETIC, COMPUTE
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.plan import active_inputs, plan
from lpot.core.numerics.histogram import TensorStats
from lpot.core.ptq.ranges import noise
from lpot.core.recipe import OpKey, Recipe

MOST = 24  # edges looked at: each costs a build and a run


def edge_groups(
    graph: Graph, recipe: Recipe, stats: Mapping[str, TensorStats]
) -> list[tuple[str, tuple[OpKey, ...]]]:
    """Tensors that followers make, the worst in themselves first, and the ops that free each."""
    drawn = plan(graph, recipe)
    compute = {node.name for node in graph.nodes if node.op_type in COMPUTE}
    keys = {key.name: key for key in recipe.low_ops if key.name in compute}
    made = [
        node.output[0]
        for node in graph.nodes
        if node.name in drawn.low and node.op_type in ARITHMETIC
    ]
    found = []
    for name in sorted(
        (name for name in made if name in drawn.tensors), key=lambda name: -noise(stats.get(name))
    ):
        group = tuple(dict.fromkeys(keys[op] for op in _around(graph, name) if op in keys))
        if group and name not in plan(graph, recipe.with_float(group)).tensors:
            found.append((name, group))
        if len(found) == MOST:
            break
    return found


def _around(graph: Graph, name: str) -> Iterator[str]:
    """The op behind one input of the producer, and all that read the tensor."""
    producer = graph.producers[name]
    for source in reversed(active_inputs(graph, producer)):  # the branch, as most nets write it
        before = graph.producers.get(source)
        if before is not None and before.op_type in COMPUTE:
            yield before.name
            break
    waiting, known = [name], {name}
    while waiting:
        for user in graph.consumers.get(waiting.pop(), ()):
            if user.op_type in COMPUTE:
                yield user.name
            elif user.op_type not in ARITHMETIC:  # what hands the same values on
                waiting += set(user.output) - known
                known |= set(user.output)
