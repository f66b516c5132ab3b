"""Labels in the shape that a loss takes: class numbers, or values for each output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lpot.core.errors import DataError


def fitted(labels: Any, shape: Sequence[int], classes: int) -> np.ndarray:
    """For outputs of this shape whose axis `classes` counts them.

    Class numbers as integers, whatever ones their shape has; one-hot rows, shares and values (as
    many as outputs) as floats.

    >>> fitted([[1], [0]], (2, 3), 1).tolist()
    [1, 0]
    >>> fitted([[0, 0, 1]], (1, 3), 1).tolist()
    [[0.0, 0.0, 1.0]]
    >>> fitted([7], (1, 3), 1)
    Traceback (most recent call last):
    ...
    lpot.core.errors.DataError: the training data have the label 7, but the model gives 3 classes
    """
    found = np.asarray(labels)
    if found.dtype.kind not in "biuf":
        raise DataError(
            f"the labels of the training data are of type {found.dtype}: expected class numbers"
        )
    every = tuple(int(size) for size in shape)
    axis = classes % len(every) if every else 0
    count = every[axis] if every else 1
    others = tuple(size for at, size in enumerate(every) if at != axis)
    if found.size == int(np.prod(every)):
        return found.reshape(every).astype(np.float32)
    if found.size != int(np.prod(others)):
        raise DataError(
            f"the training data have labels of shape {list(found.shape)} for outputs of shape "
            f"{list(every)}: expected a class number for each sample, or a value for each output"
        )
    numbers = found.reshape(others).astype(np.int64)
    if numbers.size and numbers.max() >= count:
        raise DataError(
            f"the training data have the label {numbers.max()}, but the model gives {count} classes"
        )
    return numbers
