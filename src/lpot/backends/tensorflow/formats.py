"""How a tensor is held in 8 bits, and which ops can make or take it so."""

from __future__ import annotations

from dataclasses import dataclass

from lpot.backends.tensorflow.match import Unit
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.steps import Step
from lpot.core.numerics import affine

SIX = 6.0 * (1 + 1e-6)


@dataclass(frozen=True)
class Format:
    """real = (q - zero) · scale, in quint8 (zero 0 to 255) or qint8 (zero 0).

    TensorFlow's convolutions know no zero point: they take quint8 as if zero were 0. The shift of
    zero · scale that they see too much is a constant, and the biases on either side absorb it.
    """

    dtype: str
    scale: float
    zero: int = 0

    @classmethod
    def of(cls, lo: float, hi: float, dtype: str, scheme: str) -> Format:
        if dtype == "int8":
            return cls("qint8", float(affine(lo, hi, "int8", "sym").scale))
        params = affine(lo, hi, "uint8", scheme)
        return cls("quint8", float(params.scale), int(params.zero_point))

    @property
    def tf_dtype(self) -> tf.DType:
        return tf.quint8 if self.dtype == "quint8" else tf.qint8

    @property
    def shift(self) -> float:
        """What a kernel that knows no zero point sees too much."""
        return self.zero * self.scale

    @property
    def low(self) -> float:
        return -127 * self.scale if self.dtype == "qint8" else -self.shift

    @property
    def high(self) -> float:
        return 127 * self.scale if self.dtype == "qint8" else (255 - self.zero) * self.scale

    @property
    def kernel_range(self) -> tuple[float, float]:
        """The range to tell a kernel that knows no zero point."""
        return self.low + self.shift, self.high + self.shift


def takes(unit: Unit, form: Format) -> bool:
    """Zeros that padding puts into the window must mean 0."""
    return form.zero == 0 or not unit.padded


def makes(step: Step, form: Format) -> bool:
    """Can the op's own kernel give its result in this form?"""
    activation = step.activation
    if step.unit.is_matmul:
        # GELU and its like are followed by a true zero point; for the others the bias carries it.
        return step.addend is None and (activation not in ("Relu", "Relu6") or form.zero == 0)
    if step.sums and form.dtype != "quint8":
        return False
    if not activation:
        return True
    # The upper end of the range is what cuts at 6.
    return form.zero == 0 and (activation == "Relu" or form.high <= SIX)
