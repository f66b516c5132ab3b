"""A training that ends when its job is to end: an epoch may take an hour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lpot.core.errors import LpotError
from lpot.core.limits import Watch
from lpot.core.loader import length_of


class Stopped(LpotError):
    """The user asked to stop, or the time is up."""


class Stoppable:
    """A loader that raises `Stopped` at the first batch after that.

    >>> from lpot.core.limits import Limits
    >>> watch = Watch(Limits())
    >>> list(Stoppable([1, 2], watch))
    [1, 2]
    >>> watch.request_stop("Ctrl-C")
    >>> list(Stoppable([1, 2], watch))
    Traceback (most recent call last):
    ...
    lpot.jobs.compress.stoppable.Stopped: the training was stopped: Ctrl-C
    """

    def __init__(self, loader: Iterable[Any], watch: Watch) -> None:
        self._loader, self._watch = loader, watch

    def __iter__(self) -> Iterator[Any]:
        for raw in self._loader:
            if self._watch.requested or self._watch.time_is_up:
                why = self._watch.requested or "the time is up"
                raise Stopped(f"the training was stopped: {why}")
            yield raw

    def __len__(self) -> int:
        found = length_of(self._loader)
        return sum(1 for _ in self._loader) if found is None else found
