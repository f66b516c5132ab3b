"""A Keras training as arrays, to go on from: variables of the model and of its optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpot.core.compress.resume import Kept


class KerasTraining:
    """What changes in a training loop of the yaml; random numbers of layers are variables, too."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer

    @property
    def _variables(self) -> list[Any]:
        self.optimizer.build(self.model.trainable_variables)
        return [*self.model.variables, *self.optimizer.variables]

    def kept(self) -> Kept:
        return Kept({str(at): plain(each.numpy()) for at, each in enumerate(self._variables)}, {})

    def take(self, kept: Kept) -> None:
        variables = self._variables
        if len(variables) != len(kept.arrays):
            raise ValueError(f"{len(kept.arrays)} variables, not {len(variables)}")
        for at, variable in enumerate(variables):
            variable.assign(kept.arrays[str(at)])


def plain(value: Any) -> np.ndarray:
    """Of a type that files of NumPy know: bfloat16 as float32, which holds it exactly."""
    found = np.array(value)
    return found if found.dtype.kind in "fiub" else found.astype(np.float32)
