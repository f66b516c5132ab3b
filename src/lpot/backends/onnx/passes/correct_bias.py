"""Mend what rounding a weight does to its op: the mean of the outputs, and each channel's spread.

Both come from the calibration pass alone: rounding shifts an output by the error of its weights
times the mean of what they are multiplied with. A weight that is exact is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, attribute

Means = Mapping[str, np.ndarray]  # tensor → the mean of each of its channels


def mean_inputs(graph: Graph) -> dict[str, int]:
    """Inputs of the ops whose bias can be mended, and how many axes each has."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        weight = graph.weights.get(node.input[1]) if len(node.input) > 1 else None
        if weight is None:
            continue
        if node.op_type == "Conv":
            found[node.input[0]] = weight.ndim
        elif node.op_type == "Gemm" and not attribute(node, "transA", 0):
            found[node.input[0]] = 2
    return found


def bias_shift(node: NodeProto, error: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """By how much each output's mean moves when the op's weight is off by `error`."""
    wrong, inputs = error.astype(np.float64), mean.astype(np.float64)
    if node.op_type == "Conv":
        group = int(attribute(node, "group", 1) or 1)
        taps = wrong.reshape(*wrong.shape[:2], -1).sum(axis=2)
        by_group = taps.reshape(group, -1, taps.shape[1])
        shift: np.ndarray = np.einsum("goi,gi->go", by_group, inputs.reshape(group, -1))
        return shift.reshape(-1)
    return wrong @ inputs if attribute(node, "transB", 0) else inputs @ wrong


def spread_scale(
    weight: np.ndarray, data: np.ndarray, scale: np.ndarray, axis: int | None
) -> np.ndarray:
    """The scale with which the rounded weight has the spread that it had, channel by channel."""
    others = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    before = weight.astype(np.float64).std(axis=others)
    after = data.astype(np.float64).std(axis=others) * scale
    ratio = np.divide(before, after, out=np.ones_like(after), where=after > 0)
    # Far from one a channel has hardly a step left: its spread says nothing.
    mended: np.ndarray = (scale * np.where((ratio > 0.5) & (ratio < 2.0), ratio, 1.0)).astype(
        np.float32
    )
    return mended
