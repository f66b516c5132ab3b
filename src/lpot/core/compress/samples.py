"""The first samples of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpot.core.batch import Inputs


def first(inputs: Inputs, count: int) -> Inputs:
    """Values without samples stay as they are.

    >>> import numpy as np
    >>> first((np.arange(3), 0.5), 2)
    (array([0, 1]), 0.5)
    """
    if isinstance(inputs, Mapping):
        return {name: _first(value, count) for name, value in inputs.items()}
    return tuple(_first(value, count) for value in inputs)


def _first(value: Any, count: int) -> Any:
    return value[:count] if len(getattr(value, "shape", ())) > 0 else value
