"""Which ops hurt: the distance of the outputs with one op at a time in INT8, without labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
MEASURED = 128  # ops measured one by one; of more, parts of the net
TELLING = 0.01  # of the largest error: below, a part is not looked into
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
    model.rest()

    def outputs(graph: Graph) -> list[list[np.ndarray]]:
        opened = session(graph, QUICK, packs=False)
        return [run_session(opened, model.inputs, inputs) for inputs in probe]

    truth = outputs(model.prepared)

    def error_of(tried: Recipe) -> float:
        found = outputs(backend.build(model, tried, observations).graph)
        return sum(map(distance, truth, found)) / len(probe)

    def error_with(keys: Sequence[OpKey]) -> float:
        alone = set(keys)
        return error_of(recipe.with_float(key for key in recipe.low_ops if key not in alone))

    kinds = (*COMPUTE, *TABLES, *RECURRENT)
    nodes = [node for part in parts(model) for node in part.prepared.nodes]
    ranked = {node.name for node in nodes if node.op_type in kinds}
    found = by_parts([key for key in recipe.low_ops if key.name in ranked], error_with)
    whole = error_of(recipe)
    if sum(found.values()) < EXPLAINED * whole:
        edges = edge_groups(model.prepared, recipe, observations.tensors)
        for _, group in tracked(edges):
            won = whole - error_of(recipe.with_float(group))
            found |= {key: max(found[key], won) for key in group}
    return found


def by_parts(
    keys: Sequence[OpKey], error_with: Callable[[Sequence[OpKey]], float]
) -> dict[OpKey, float]:
    """The error of each op; of very many, neighbours are measured together.

    The part that errs most is halved as long as that tells something; what is left whole shares
    its error. So the work does not grow with the square of a net's depth.

    >>> errs = lambda part: sum(9.0 if key.name == "bad" else 0.001 for key in part)
    >>> keys = [OpKey(f"op{index}", "Conv") for index in range(400)] + [OpKey("bad", "Conv")]
    >>> found = by_parts(keys, errs)
    >>> max(found, key=found.__getitem__).name, len(found)
    ('bad', 401)
    """
    size = 1 if len(keys) <= MEASURED else -(-2 * len(keys) // MEASURED)
    parts = [tuple(keys[start : start + size]) for start in range(0, len(keys), size)]
    errors = {part: error_with(part) for part in tracked(parts)}
    left = MEASURED - len(errors)
    while left > 1 and (whole := [part for part in errors if len(part) > 1]):
        worst = max(whole, key=errors.__getitem__)
        if errors[worst] < TELLING * max(errors.values()):
            break
        del errors[worst]
        half = len(worst) // 2
        errors |= {part: error_with(part) for part in (worst[:half], worst[half:])}
        left -= 2
    return {key: error / len(part) for part, error in errors.items() for key in part}
