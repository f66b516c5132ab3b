"""What a dataset is: numbered samples of (image, label), with a transform and a filter on top."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.data.transforms.base import Sample, apply, chain, finished, steps_of

TransformFunction = Callable[[Sample], Sample]
FilterFunction = Callable[[Any, Any], bool]


class Dataset:
    """Samples by number.

    A dataset says how many it has (`count`), how to read one (`read`), and where it comes from
    (`origin`, for errors). `transform` and `filter` are applied here, the same for all.
    """

    # The original's base class had no __init__, so that datasets of its users call none.
    transform: TransformFunction | None = None
    filter: FilterFunction | None = None
    _kept: list[int] | None = None

    def __init__(
        self, transform: TransformFunction | None = None, filter: FilterFunction | None = None
    ) -> None:
        self.transform = transform
        self.filter = filter
        self._kept = None

    def count(self) -> int:
        """Number of samples before the filter."""
        raise TypeError(f"{type(self).__name__} should say how many samples it has")

    def read(self, number: int) -> Any:
        """Sample `number`, before the transform."""
        raise TypeError(f"{type(self).__name__} should say how to read a sample")

    def label(self, number: int) -> Any:
        """The label alone; datasets that know it without the image override this."""
        return self.read(number)[1]

    def origin(self, number: int) -> str:
        """Where the sample comes from, for error messages."""
        return f"{type(self).__name__} sample {number}"

    def __len__(self) -> int:
        return self.count() if self.filter is None else len(self._selection())

    def __getitem__(self, index: int) -> Any:
        number = self._number(int(index))
        try:
            # The decoded image gets no name here: it is freed as soon as it is resized, and the
            # next one takes its place in memory instead of new pages from the system.
            return finished(chain(steps_of(self.transform), self.read(number)))
        except (DataError, ConfigError) as error:
            origin = self.origin(number)
            # Reading names the file itself; a transform does not know it.
            named = str(error).startswith(origin)
            raise error if named else DataError(f"{origin}: {error}") from error

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def _number(self, index: int) -> int:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(
                f"{type(self).__name__} has {size} samples, there is no number {index}"
            )
        index %= size
        return index if self.filter is None else self._selection()[index]

    def _selection(self) -> list[int]:
        """The numbers of the samples the filter lets pass, found once."""
        assert self.filter is not None
        if self._kept is None:
            passes = self.filter
            self._kept = [n for n in range(self.count()) if passes(None, self.label(n))]
            if not self._kept and self.count():
                raise DataError(
                    f"the filter {type(passes).__name__} rejects all {self.count()} samples of "
                    f"{type(self).__name__}"
                )
        return self._kept


class LabelledImages(Dataset):
    """Images and class numbers that lie in memory."""

    images: np.ndarray
    labels: np.ndarray

    def count(self) -> int:
        return len(self.labels)

    def read(self, number: int) -> tuple[np.ndarray, int]:
        return self.images[number], self.label(number)

    def label(self, number: int) -> int:
        return int(self.labels[number])


class IterableDataset:
    """Samples in a row, without numbers: a subclass yields them from `samples`."""

    def __init__(
        self, transform: TransformFunction | None = None, filter: FilterFunction | None = None
    ) -> None:
        self.transform = transform
        self.filter = filter

    def samples(self) -> Iterator[Any]:
        """The samples before filter and transform."""
        raise TypeError(f"{type(self).__name__} should say where its samples come from")

    def __iter__(self) -> Iterator[Any]:
        for sample in self.samples():
            if self.filter is None or self.filter(*sample):
                yield apply(self.transform, sample)


def check_labels(labels: Any, classes: int, origin: str) -> None:
    """Refuse a label that is not a class number, naming the sample."""
    for number, label in enumerate(labels):
        if not isinstance(label, int) or not 0 <= label < classes:
            raise DataError(
                f"{origin}: sample {number} has the label {label}; expected 0 to {classes - 1}"
            )
