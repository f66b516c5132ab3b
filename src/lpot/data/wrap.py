"""Any loader as ours: torch's DataLoader, tf.data, generators and plain iterables, all as numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lpot.core.batch import split
from lpot.core.errors import DataError
from lpot.data.loader import DataLoader


class WrappedLoader:
    """A user's loader behind one face: iterate for batches of numpy arrays.

    `batch_size` is the loader's own, or read off the first batch; `one_shot` says that the source
    can be iterated only once.
    """

    def __init__(self, source: Any, numpy: bool = True) -> None:
        self.source = source
        self.numpy = numpy
        self._factory = _factory(source)
        self.one_shot = self._factory is None
        self._spent = False
        self._size: int | None = _declared_size(source)
        self._peeked: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches():
            if self._size is None:
                self._size = split(batch, None).size
            yield as_numpy(batch) if self.numpy else batch

    def __len__(self) -> int:
        return len(self.source)

    @property
    def batch_size(self) -> int:
        """Samples in a batch."""
        if self._size is None:
            self._size = split(self._peek(), None).size
        return self._size

    def _batches(self) -> Iterator[Any]:
        if self._factory is not None:
            yield from self._factory()
            return
        if self._spent:
            raise DataError(
                f"the loader is a {type(self.source).__name__}, which can be iterated only once, "
                "and it was. Give a list, a class with __iter__, or the function that makes "
                "the generator instead of its result"
            )
        self._spent = True
        while self._peeked:
            yield self._peeked.pop()
        yield from self.source

    def _peek(self) -> Any:
        """The first batch, kept for the pass to come where the source can't be started again."""
        if self._peeked:
            return self._peeked[0]
        source = self.source if self._factory is None else self._factory()
        try:
            first = next(iter(source))
        except StopIteration:
            raise DataError("the loader is empty: it gave no batch") from None
        if self._factory is None:
            self._peeked.append(first)
        return first


def wrap(source: Any, numpy: bool = True) -> Any:
    """A user's loader with one face; a loader of our own comes back as it is.

    Args:
        source: torch's DataLoader, a tf.data dataset, a generator or the function that makes one, a
            list of batches, any object with `__iter__`, or with `__getitem__` and `__len__`.
        numpy: turn frameworks' tensors into numpy arrays.

    >>> [batch for batch in wrap([[1.0], [2.0]])]
    [[1.0], [2.0]]
    """
    ours = isinstance(source, DataLoader | WrappedLoader)
    return source if ours else WrappedLoader(source, numpy)


def _factory(source: Any) -> Callable[[], Iterator[Any]] | None:
    """What starts a pass over the source; None if it can be iterated only once."""
    if hasattr(source, "__iter__"):
        # Only an iterator is its own iterator; torch's and TensorFlow's loaders are not.
        if hasattr(source, "__next__"):
            return None
        return lambda: iter(source)
    if hasattr(source, "__getitem__"):
        return lambda: (source[index] for index in _indices(source))
    if callable(source) and not isinstance(source, type):
        return lambda: iter(source())
    raise DataError(
        f"a loader should be iterable; {type(source).__name__} has no __iter__, no __getitem__ and "
        "is not a function that returns a generator"
    )


def _indices(source: Any) -> Iterator[int]:
    if not hasattr(source, "__len__"):
        raise DataError(f"{type(source).__name__} has __getitem__ but neither __len__ nor __iter__")
    return iter(range(len(source)))


def _declared_size(source: Any) -> int | None:
    for holder in (source, getattr(source, "batch_sampler", None)):
        size = getattr(holder, "batch_size", None)
        if isinstance(size, int | np.integer) and not isinstance(size, bool) and size > 0:
            return int(size)
    return None


def as_numpy(batch: Any) -> Any:
    """The batch with frameworks' tensors as numpy arrays; all else as it is.

    Tensors are known by what they can do, so no framework is imported. A type that numpy lacks
    (bfloat16) stays a tensor.
    """
    if isinstance(batch, np.ndarray | str | bytes) or np.isscalar(batch):
        return batch
    if isinstance(batch, Mapping):
        return {key: as_numpy(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(as_numpy(item) for item in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(as_numpy(item) for item in batch)
    return _tensor(batch)


def _tensor(value: Any) -> Any:
    if callable(getattr(value, "asnumpy", None)):  # MXNet
        return value.asnumpy()
    if callable(getattr(value, "detach", None)):  # PyTorch, maybe with a gradient
        value = value.detach().cpu()
    if callable(getattr(value, "numpy", None)):  # PyTorch and TensorFlow
        try:
            return value.numpy()
        except TypeError:
            return value
    return value
