"""Which ops hurt: the distance of the outputs with one op at a time in INT8, without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort

from lpot.backends.onnx.abilities import COMPUTE, RECURRENT, TABLES
from lpot.backends.onnx.bodies import parts
from lpot.backends.onnx.edges import edge_groups
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.run import run_session, session
from lpot.core.backend import Observations
from lpot.core.progress import tracked
from lpot.core.ptq.distance import distance, few
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.backends.onnx import OnnxBackend

# Fused kernels and their long optimisation are of no use for one run of the probe.
QUICK = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
EXPLAINED = 0.5  # of the whole error, by the ops alone: less, and the edges between are looked at


def rank(
    backend: OnnxBackend, model: OnnxModel, recipe: Recipe, observations: Observations
) -> dict[OpKey, float]:
    """Sensitivity of each INT8 compute op: squared output error over squared output, summed.

    Where the ops alone do not add up to the error of all together, tensors between followers are to
    blame: what is won by freeing one counts for every op that must go back for it.
    """
    if not observations.probe:
        return {}
    probe = few(observations.probe)

    def outputs(graph: Graph) -> list[list[np.ndarray]]:
        opened = session(graph, QUICK)
        return [run_session(opened, model.inputs, inputs) for inputs in probe]

    truth = outputs(model.prepared)

    def error_of(tried: Recipe) -> float:
        found = outputs(backend.build(model, tried, observations).graph)
        return sum(map(distance, truth, found)) / len(probe)

    found = {}
    kinds = (*COMPUTE, *TABLES, *RECURRENT)
    nodes = [node for part in parts(model) for node in part.prepared.nodes]
    ranked = {node.name for node in nodes if node.op_type in kinds}
    for key in tracked([key for key in recipe.low_ops if key.name in ranked]):
        found[key] = error_of(recipe.with_float(other for other in recipe.low_ops if other != key))
    whole = error_of(recipe)
    if sum(found.values()) < EXPLAINED * whole:
        edges = edge_groups(model.prepared, recipe, observations.tensors)
        for _, group in tracked(edges):
            won = whole - error_of(recipe.with_float(group))
            found |= {key: max(found[key], won) for key in group}
    return found
