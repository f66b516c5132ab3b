"""Bias correction on TensorFlow: a layer's weight as the algorithm reads it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lpot.backends.tensorflow.affine import is_transposed
from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.layers import Step
from lpot.backends.tensorflow.passes.simulate_ops import rounded_weight
from lpot.backends.tensorflow.plan import Plan
from lpot.backends.tensorflow.prepare import Prepared
from lpot.core.ptq.bias_correction import output_shift


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
