"""What the driver of a Ray cluster keeps in mind: workers, orders, and whether there is room."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from lpot.core.recipe import Recipe
from lpot.core.tune import Numbered
from lpot.jobs.execute.ray_cluster import PATIENCE
from lpot.jobs.execute.ray_worker import Place


class Worker:
    """One actor: first it is placed, then it loads, then it makes one trial after the other."""

    def __init__(self, actor: Any, placing: Any) -> None:
        self.actor = actor
        self.ref = placing  # what it is at
        self.watch: Any = None  # answers when it holds too much memory
        self.place: Place | None = None
        self.order: Numbered | None = None
        self.since = time.monotonic()

    @property
    def spent(self) -> float:
        return time.monotonic() - self.since

    @property
    def is_loading(self) -> bool:
        return self.place is not None and self.ref is not None and self.order is None

    @property
    def is_idle(self) -> bool:
        return self.ref is None

    def placed(self, place: Place, loading: Any, watch: Any) -> None:
        self.place, self.ref, self.watch, self.since = place, loading, watch, time.monotonic()

    def give(self, order: Numbered) -> None:
        self.order, self.since = order, time.monotonic()
        self.ref = self.actor.attempt.remote(*order)

    def take(self) -> Numbered:
        order, self.order, self.ref = self.order, None, None
        assert order is not None
        return order


class Orders:
    """The recipes of one batch: taken when there is someone to work on them."""

    def __init__(self, source: Iterator[Numbered], begin: Callable[[int, Recipe], None]) -> None:
        self.again: list[Numbered] = []  # those whose worker was lost
        self._source = source
        self._begin = begin
        self._wanted: set[int] = set()  # taken and not finished
        self._losses: Counter[int] = Counter()
        self._doubled: set[int] = set()
        self._is_exhausted = False

    @property
    def are_open(self) -> bool:
        return bool(self._wanted) or not self._is_exhausted

    def next(self) -> Numbered | None:
        if self.again:
            return self.again.pop()
        order = None if self._is_exhausted else next(self._source, None)
        if order is None:
            self._is_exhausted = True
            return None
        self._wanted.add(order[0])
        self._begin(*order)
        return order

    def is_wanted(self, order: Numbered) -> bool:
        return order[0] in self._wanted

    def finish(self, number: int) -> bool:
        """False if it was finished before, or is of an earlier batch."""
        if number not in self._wanted:
            return False
        self._wanted.remove(number)
        self.again = [order for order in self.again if order[0] != number]
        return True

    def lose(self, order: Numbered) -> int:
        self._losses[order[0]] += 1
        return self._losses[order[0]]

    def may_repeat(self, order: Numbered | None) -> bool:
        if order is None or order[0] not in self._wanted or order[0] in self._doubled:
            return False
        self._doubled.add(order[0])
        return True


class Room:
    """How long nobody has had a place, and since when nothing was heard."""

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._start = self._since = self._heard = time.monotonic()
        self._told = False
        self.was_found = False

    def found(self) -> None:
        self._since, self.was_found = time.monotonic(), True

    def is_over(self, longer: float) -> bool:
        """Is it time to give up? With `longer`, not before so many seconds."""
        return time.monotonic() - self._since > max(self._wait, longer)

    def is_due(self, seconds: float) -> bool:
        """Once: is it time to tell?"""
        due = not self._told and time.monotonic() - self._start > seconds
        self._told = self._told or due
        return due

    def is_silent(self, heard: bool) -> bool:
        """Has nothing been heard for so long that the cluster itself should be asked?"""
        now = time.monotonic()
        silent = not heard and now - self._heard > PATIENCE
        if heard or silent:
            self._heard = now
        return silent
