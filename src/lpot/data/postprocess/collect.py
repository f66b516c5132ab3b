"""Outputs beyond the last real sample, left out."""

from __future__ import annotations

from typing import Any

from lpot.core.batch import as_array
from lpot.core.errors import ConfigError
from lpot.data.postprocess.label import Sample


class Collect:
    """Keeps the outputs of the first `length` samples of a pass and drops the rest.

    For data that was padded to whole batches; put it before SquadV1, which itself waits until
    all windows of a question have arrived.

    >>> import numpy as np
    >>> Collect(3)((np.zeros((2, 5)), [7, 8]))[1], Collect(1)((np.zeros((2, 5)), [7, 8]))[1]
    ([7, 8], [7])
    """

    def __init__(self, length: int = 10833) -> None:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ConfigError(f"length is {length!r}, expected a number of samples")
        self.length = length
        self.reset()

    def reset(self) -> None:
        """A new evaluation begins."""
        self._seen = 0

    def __call__(self, sample: Sample) -> Sample:
        outputs, labels = sample
        if outputs is None:
            return sample
        several = isinstance(outputs, list | tuple)
        arrays = [as_array(one) for one in (outputs if several else [outputs])]
        count = len(arrays[0])
        room = max(0, self.length - self._seen)
        self._seen += count
        if count <= room:
            return sample
        if not room:
            return None, None
        kept = [array[:room] for array in arrays]
        return (kept if several else kept[0]), _first(labels, room, count)


def _first(labels: Any, room: int, count: int) -> Any:
    """The labels of the samples kept, where there is one for each."""
    sized = hasattr(labels, "__getitem__") and hasattr(labels, "__len__")
    return labels[:room] if sized and len(labels) == count else labels
