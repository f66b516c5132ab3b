"""What the loop tells while it works. Listeners draw; the core knows no terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from lpot.core.goal import Goal
from lpot.core.trial import Score, Trial

Item = TypeVar("Item")


class Listener:
    """Hears everything and does nothing: subclass and override what you draw."""

    def phase(self, name: str, total: int | None = None) -> None:
        """A new stretch of work begins; `total` steps if known."""

    def step(self, done: int) -> None:
        """So many steps of the phase are done."""

    def note(self, text: str) -> None:
        """Something the user should read."""

    def baseline(self, score: Score, goal: Goal) -> None: ...

    def trial(self, trial: Trial, best: Trial | None) -> None: ...

    def close(self) -> None: ...


def counted(items: Iterable[Item], listener: Listener) -> Iterator[Item]:
    """Pass items on, telling the listener how many have gone by."""
    for done, item in enumerate(items, start=1):
        yield item
        listener.step(done)
