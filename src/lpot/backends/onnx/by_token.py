"""Inputs rounded while running, with a scale for each token.

The runtime rounds a tensor with one scale. A single token with huge activations, as decoders have
in front of some products, leaves no precision to all the others then. So each row is divided by its
largest value before, and the product's row is multiplied by it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import NodeProto, helper

BY_TOKEN = "per_token"  # granularity of an activation
LEAST = 1e-20  # that a row is divided by: rows of zeros stay zeros
AXES, FLOOR = "tokens/axes", "tokens/least"


def in_one_range(
    source: str, opset: int, fresh: Callable[[str], str]
) -> tuple[list[NodeProto], dict[str, np.ndarray], str, str]:
    """Nodes and constants; the tensor whose rows reach from -1 to 1; what each was divided by."""
    words = ("sizes", "largest", "row_scales", "in_range")
    sizes, largest, scales, unit = (fresh(f"{source}/{word}") for word in words)
    constants = {FLOOR: np.array(LEAST, np.float32)}
    axes: dict[str, list[int]] = {}
    inputs = [sizes]
    if opset >= 18:
        constants[AXES] = np.array([-1], np.int64)
        inputs.append(AXES)
    else:
        axes["axes"] = [-1]
    nodes = [
        helper.make_node("Abs", [source], [sizes], name=sizes),
        helper.make_node("ReduceMax", inputs, [largest], name=largest, keepdims=1, **axes),
        helper.make_node("Max", [largest, FLOOR], [scales], name=scales),
        helper.make_node("Div", [source, scales], [unit], name=unit),
    ]
    return nodes, constants, unit, scales
