"""Class labels made to fit the model's counting."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpot.core.batch import as_array
from lpot.core.errors import ConfigError, DataError

Sample = tuple[Any, Any]  # (predictions, labels)


class LabelShift:
    """Subtracts a number from every class label, for models that number classes differently.

    >>> LabelShift(1)(("outputs", [1, 5]))
    ('outputs', [0, 4])
    """

    each_batch_alone = True

    def __init__(self, label_shift: int = 0) -> None:
        if isinstance(label_shift, bool) or not isinstance(label_shift, int):
            raise ConfigError(f"label_shift is {label_shift!r}, expected a whole number")
        self.label_shift = label_shift

    def __call__(self, sample: Sample) -> Sample:
        preds, labels = sample
        return preds, self._shift(labels)

    def _shift(self, labels: Any) -> Any:
        if isinstance(labels, list | tuple):
            return type(labels)(self._shift(one) for one in labels)
        if isinstance(labels, int | float):
            return labels - self.label_shift
        array = as_array(labels)
        if array.dtype.kind not in "iuf":
            raise DataError(f"LabelShift needs class numbers as labels, not {labels!r:.80}")
        # Unsigned labels would wrap around below zero.
        return (array.astype(np.int64) if array.dtype.kind == "u" else array) - self.label_shift
