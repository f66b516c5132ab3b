"""Bias correction on ONNX: whose means are needed, and weights as the algorithm reads them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import NodeProto

from lpot.backends.onnx.graph import Graph, attribute
from lpot.core.ptq.bias_correction import output_shift

Means = Mapping[str, np.ndarray]  # tensor → the mean of each of its channels


def mean_inputs(graph: Graph) -> dict[str, int]:
    """Inputs of the ops whose bias can be corrected, and how many axes each has."""
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
    if node.op_type == "Conv":
        return output_shift(error, mean, int(attribute(node, "group", 1) or 1))
    return output_shift(error if attribute(node, "transB", 0) else error.T, mean)
