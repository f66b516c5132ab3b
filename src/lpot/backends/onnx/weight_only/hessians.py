"""What the inputs of products look like: the mean of x xᵀ, reduced inside the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper

# Of the mean diagonal, for one row a column: what is added to it. On SmolLM2, outputs for other
# texts gain by it where rows are few (8192 for 1536 columns), and lose nothing where they are many.
CHANCE = 0.25


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

    def damped(self) -> dict[str, np.ndarray]:
        """The same to fit weights to: the fewer rows for its columns, the less is made of what
        goes together in them by chance."""
        found = self.result()
        for rows, hessian in zip(self._rows, found.values(), strict=True):
            share = CHANCE * len(hessian) / max(rows, 1.0)
            hessian[np.diag_indices(len(hessian))] += share * float(np.diagonal(hessian).mean())
        return found


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
