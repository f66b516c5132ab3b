"""Which ops hurt: the distance of the outputs with one op at a time in INT8, without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort

from lpot.backends.onnx.abilities import COMPUTE
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.run import run_session, session
from lpot.core.backend import Observations
from lpot.core.progress import tracked
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.backends.onnx import OnnxBackend

# Fused kernels and their long optimisation are of no use for one run of the probe.
QUICK = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC


def rank(
    backend: OnnxBackend, model: OnnxModel, recipe: Recipe, observations: Observations
) -> dict[OpKey, float]:
    """Harm of each INT8 compute op: squared output error over squared output, summed."""
    if not observations.probe:
        return {}
    inputs = observations.probe[0]
    truth = run_session(session(model.folded, QUICK), model.inputs, inputs)
    harm = {}
    for key in tracked([key for key in recipe.low_ops if key.kind in COMPUTE]):
        alone = recipe.with_float(other for other in recipe.low_ops if other != key)
        trial = backend.build(model, alone, observations)
        outputs = run_session(session(trial.graph, QUICK), model.inputs, inputs)
        harm[key] = distance(truth, outputs)
    return harm


def distance(truth: list[np.ndarray], outputs: list[np.ndarray]) -> float:
    total = 0.0
    for reference, output in zip(truth, outputs, strict=True):
        if reference.dtype.kind != "f" or reference.shape != output.shape:
            total += float(not np.array_equal(reference, output))
            continue
        exact = reference.astype(np.float64)
        power = float(np.mean(exact**2)) or 1.0
        error = float(np.mean((output.astype(np.float64) - exact) ** 2))
        total += error / power if np.isfinite(error) else float("inf")
    return total
