"""Bias correction: what rounding a weight does to its layer's outputs, taken back from statistics.

Rounding shifts an output by the error of its weights times the mean of what they are multiplied
with, which calibration has seen; the bias takes that back. As in "Data-Free Quantization Through
Weight Equalization and Bias Correction" (2019), with measured means. It costs nothing at run time,
and a weight that is exact is left as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def output_shift(error: Array, mean: Array, groups: int = 1) -> npt.NDArray[np.float64]:
    """By how much the mean of each output moves.

    Args:
        error: of the weight; outputs, then inputs of a group, then the taps of a kernel if any.
        mean: of each input channel. What padding keeps out of the window is neglected.
        groups: of a grouped convolution.

    >>> output_shift(np.array([[0.1, 0.0], [0.0, 0.2]]), np.array([1.0, 2.0]))
    array([0.1, 0.4])
    >>> output_shift(np.ones((2, 1, 3)), np.array([1.0, 2.0]), groups=2)
    array([3., 6.])
    """
    wrong = error.astype(np.float64)
    taps = wrong.reshape(*wrong.shape[:2], -1).sum(axis=2)
    by_group = taps.reshape(groups, -1, taps.shape[1])
    inputs = mean.astype(np.float64).reshape(groups, -1)
    return np.asarray(np.einsum("goi,gi->go", by_group, inputs).reshape(-1))


def corrected_scale(weight: Array, data: Array, scale: Array, axis: int | None) -> Array:
    """The scale with which the rounded weight has the spread that it had, channel by channel."""
    others = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    before = weight.astype(np.float64).std(axis=others)
    after = data.astype(np.float64).std(axis=others) * scale
    ratio = np.divide(before, after, out=np.ones_like(after), where=after > 0)
    # Far from one a channel has hardly a step left: its spread says nothing.
    usable = np.where((ratio > 0.5) & (ratio < 2.0), ratio, 1.0)
    return np.asarray(scale * usable, np.float32)
