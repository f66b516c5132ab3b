"""What the inputs of products look like: the mean of x xᵀ, reduced inside the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper


class Gathering:
    """Sums over batches of what `watched` gives."""

    def __init__(self, widths: Mapping[str, int]) -> None:
        self.names = tuple(widths)
        self._sums = [np.zeros((columns, columns), np.float32) for columns in widths.values()]
        self._rows = np.zeros(len(widths))

    def add(self, found: Sequence[np.ndarray]) -> None:
        for at in range(len(self.names)):
            product, shape = found[2 * at : 2 * at + 2]
            self._sums[at] += product
            self._rows[at] += int(shape[0])

    def result(self) -> dict[str, np.ndarray]:
        return {
            name: self._sums[at] / np.float32(max(self._rows[at], 1.0))
            for at, name in enumerate(self.names)
        }


def watched(widths: Mapping[str, int]) -> tuple[list[NodeProto], dict[str, np.ndarray], list[str]]:
    """Nodes that reduce the tensors to x xᵀ, and to rows; their constants and outputs."""
    nodes: list[NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    outputs: list[str] = []
    for at, (name, columns) in enumerate(widths.items()):
        stem = f"lpot/hessian/{at}"
        constants[f"{stem}/shape"] = np.array([-1, columns], np.int64)
        flat, turned = f"{stem}/flat", f"{stem}/turned"
        steps: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
            ("Reshape", [name, f"{stem}/shape"], flat, {}),
            ("Transpose", [flat], turned, {"perm": [1, 0]}),
            ("MatMul", [turned, flat], stem, {}),
            ("Shape", [flat], f"{stem}/rows", {}),
        )
        nodes += [
            helper.make_node(kind, given, [made], name=f"{made}:{kind}", **settings)
            for kind, given, made, settings in steps
        ]
        outputs += [stem, f"{stem}/rows"]
    return nodes, constants, outputs
