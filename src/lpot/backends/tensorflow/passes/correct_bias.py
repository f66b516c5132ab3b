"""Bias correction: what rounding does to the mean of an op's outputs is taken off its bias.

Rounding shifts an output by the error of its weights times the mean of what they are multiplied
with, which the calibration pass has seen. It costs nothing when the model runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lpot.backends.tensorflow.affine import is_transposed
from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.layers import Step
from lpot.backends.tensorflow.passes.simulate_ops import rounded_weight
from lpot.backends.tensorflow.plan import Plan
from lpot.backends.tensorflow.prepare import Prepared


def bias_shifts(
    prepared: Prepared, drawn: Plan, means: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Op → by how much rounding moves the mean of each of its outputs."""
    found: dict[str, np.ndarray] = {}
    for name, step in drawn.steps.items():
        mean = means.get(step.unit.x)
        if mean is not None:
            found[name] = _shift(prepared, step, drawn.taken(step.unit), mean)
    return found


def _shift(prepared: Prepared, step: Step, taken: Format, mean: np.ndarray) -> np.ndarray:
    """Worked out once for the same weight and means; trials share it."""
    key = (step.unit.node, step.config.weight, taken.dtype, mean.tobytes())
    if key not in prepared.weights:
        real = prepared.net.constant(step.unit.weight)
        assert real is not None
        error = rounded_weight(prepared, step, taken) - real
        prepared.weights[key] = _moved(prepared, step, error, mean.astype(np.float32))
    shift: np.ndarray = prepared.weights[key]
    return shift


def _moved(prepared: Prepared, step: Step, error: np.ndarray, mean: np.ndarray) -> np.ndarray:
    node = prepared.net.nodes[step.unit.node]
    if node.op == "MatMul":
        return np.asarray(error @ mean if is_transposed(node) else mean @ error)
    taps = error.sum(axis=(0, 1))  # what padding keeps out of the window is neglected
    if node.op == "DepthwiseConv2dNative":
        return np.asarray(taps * mean[:, None]).reshape(-1)
    return np.asarray(mean @ taps)
