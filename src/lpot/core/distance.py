"""How far a model's outputs are from FP32's: the measure of harm that needs no labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def distance(truth: Sequence[Any], outputs: Sequence[Any]) -> float:
    """Squared error over squared value, summed over the outputs; never NaN.

    Where FP32 itself is NaN or infinite there is nothing to compare with. An output that is neither
    where FP32 has a number is infinitely far away.

    >>> distance([np.array([3.0, 4.0])], [np.array([3.0, 4.5])])
    0.01
    """
    return sum(
        _one(np.asarray(reference), np.asarray(output))
        for reference, output in zip(truth, outputs, strict=True)
    )


def _one(reference: Array, output: Array) -> float:
    if reference.shape != output.shape:
        return math.inf
    if reference.dtype.kind != "f":
        same = reference == output
        return 1.0 - float(np.mean(same)) if same.size else 0.0
    numbers = np.isfinite(reference)
    exact = reference[numbers].astype(np.float64)
    given = output[numbers].astype(np.float64)
    if not np.isfinite(given).all():
        return math.inf
    power = float(exact @ exact) or 1.0
    error = given - exact
    return float(error @ error) / power
