"""The first samples of a batch, and the first batches of a loader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lpot.core.batch import Batch, Inputs, split
from lpot.core.calibration import owned


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


def first_batches(
    loader: Iterable[Any],
    samples: int,
    names: Sequence[str] | None = None,
    each: int | None = None,
) -> list[Inputs]:
    """The inputs of as many batches as hold so many samples, in memory; of a batch `each` at
    most."""
    found: list[Inputs] = []
    seen = 0
    for raw in loader:
        batch = Batch(split(raw, names).inputs)
        if each is not None and batch.size > each:
            batch = Batch(first(batch.inputs, each))
        found.append(owned(batch).inputs)
        seen += batch.size
        if seen >= samples:
            break
    return found
