"""What the fused INT8 ops have in common: tensors first, then ranges, and the types of both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lpot.backends.tensorflow.draft import Draft
from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.steps import Step
from lpot.backends.tensorflow.weights import Weight


@dataclass(eq=False)
class Operands:
    """`tensors` live on the device, `ranges` on the host: TensorFlow wants them in this order."""

    tensors: list[str] = field(default_factory=list)
    types: list[tf.DType] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    fused: list[str] = field(default_factory=lambda: ["BiasAdd"])

    def add(self, tensor: str, dtype: tf.DType, *ranges: str) -> None:
        self.tensors.append(tensor)
        self.types.append(dtype)
        self.ranges.extend(ranges)

    @property
    def inputs(self) -> list[str]:
        return [*self.tensors, *self.ranges]

    def attributes(self, out: tf.DType, ranges: int) -> dict[str, Any]:
        """The lists of types, for one output and so many ranges beside it."""
        return {
            "Tdevice_inputs": self.types,
            "Thost_inputs": [tf.float32] * len(self.ranges),
            "Tdevice_outputs": [out],
            "Thost_outputs": [tf.float32] * ranges,
            "fused_ops": self.fused,
        }


def operands_of(
    draft: Draft, step: Step, taken: Format, weight: Weight, bias: np.ndarray
) -> Operands:
    """Input, weight and bias, with the ranges of the first two."""
    unit = step.unit
    made = Operands()
    made.add(draft.quantized(unit.x, taken), taken.tf_dtype, *draft.range(*taken.kernel_range))
    made.add(
        draft.const(f"{unit.node}/weight", weight.integers, tf.qint8),
        tf.qint8,
        draft.const(f"{unit.node}/weight_min", -weight.peak),
        draft.const(f"{unit.node}/weight_max", weight.peak),
    )
    made.add(draft.const(f"{unit.node}/bias", bias), tf.float32)
    return made
