"""What a training reads in every epoch: a loader that can't be read again is told, not ignored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lpot.core.errors import DataError, a_kind
from lpot.core.loader import ONE_SHOT, is_loader, length_of, takes_nothing

EXPECTED = "expected something to iterate over that yields (inputs, labels), in every epoch anew"


class TrainingData:
    """Batches from the beginning each time it is iterated over, in another order where the loader
    shuffles, and with other random transforms.

    A function that makes loaders is called for each epoch, and one with `reset()` is reset.

    >>> data = TrainingData(lambda: iter([1, 2]))
    >>> list(data), list(data)
    ([1, 2], [1, 2])
    >>> list(TrainingData([]))
    Traceback (most recent call last):
    ...
    lpot.core.errors.DataError: train_dataloader yields no batches
    """

    def __init__(self, given: Any, name: str = "train_dataloader") -> None:
        if isinstance(given, ONE_SHOT):
            raise DataError(
                f"{name} is {a_kind(given)}, which can be read only once: give a list, a "
                "DataLoader, or a function that makes a new one for each epoch"
            )
        usable = is_loader(given) or callable(given)
        if not usable or isinstance(given, str | bytes | Mapping):
            raise DataError(f"{name} is {a_kind(given)}: {EXPECTED}")
        self._given, self._name = given, name
        self._gave = False
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Where a training goes on that was stopped."""
        self._epoch = epoch

    @property
    def keeps_its_place(self) -> bool:
        """Are batches that were read gone for who reads next?"""
        return hasattr(self._given, "__next__") and not hasattr(self._given, "reset")

    def __iter__(self) -> Iterator[Any]:
        given = self._given
        source = given if is_loader(given) and not isinstance(given, type) else self._made()
        for one in (source, getattr(source, "sampler", None)):
            set_epoch = getattr(one, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(self._epoch)
        self._epoch += 1
        reset = getattr(source, "reset", None)
        if callable(reset) and takes_nothing(reset):
            reset()
        size = length_of(source)
        listed = not isinstance(source, Iterable) and size is not None
        empty = True
        for raw in map(source.__getitem__, range(size or 0)) if listed else source:
            empty, self._gave = False, True
            yield raw
        if empty:
            again = " when it was read again: let __iter__ start from the beginning"
            raise DataError(f"{self._name} yields no batches{again if self._gave else ''}")

    def _made(self) -> Any:
        """What the user's function or class gives."""
        found = self._given()
        if not is_loader(found) or isinstance(found, str | bytes | Mapping):
            raise DataError(f"{self._name}() gave {a_kind(found)}: {EXPECTED}")
        return found

    def __len__(self) -> int:
        found = length_of(self._given)
        if found is None:
            raise TypeError(f"{self._name} does not tell its length")
        return found


def batches_in(loader: Iterable[Any]) -> int:
    """How many; they are counted where the loader does not tell.

    >>> batches_in([1, 2]), batches_in(TrainingData(lambda: iter([1, 2, 3])))
    (2, 3)
    """
    count = length_of(loader)
    if count is None:
        count = sum(1 for _ in loader)
    if not count:
        raise DataError("the training loader yields no batches")
    return count
