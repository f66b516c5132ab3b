"""What the loop tells while it works. Listeners draw; the core knows no terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import TypeVar

from lpot.core.goal import Goal
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, Trial

Item = TypeVar("Item")


class Listener:
    """Hears everything and does nothing: subclass and override what you draw."""

    def phase(self, name: str, total: int | None = None) -> None:
        """A new stretch of work begins; `total` steps if known."""

    def expect(self, total: int) -> None:
        """The phase, or the trial under way, turns out to have so many steps."""

    def step(self, done: int) -> None:
        """So many steps of the phase are done."""

    def note(self, text: str) -> None:
        """Something the user should read."""

    def plan(self, trials: int, timeout: float = 0.0) -> None:
        """The search begins: so many trials at most, and so many seconds (0: no limit)."""

    def baseline(self, score: Score, goal: Goal) -> None: ...

    def begin(self, number: int, recipe: Recipe) -> None:
        """The model of a trial is built and is about to be scored."""

    def trial(self, trial: Trial, best: Trial | None) -> None: ...

    def close(self) -> None:
        """Nothing more will come for now; a listener may be used again afterwards."""


_current: ContextVar[Listener | None] = ContextVar("lpot_listener", default=None)


@contextlib.contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Everything `tracked` inside is told to this listener."""
    token = _current.set(listener)
    try:
        yield
    finally:
        _current.reset(token)


def tracked(items: Sequence[Item]) -> Iterator[Item]:
    """`counted` for code that is given no listener, such as a backend's long loops."""
    listener = _current.get() or Listener()
    listener.expect(len(items))
    return counted(items, listener)


def counted(items: Iterable[Item], listener: Listener) -> Iterator[Item]:
    """Pass items on, telling the listener how many have gone by."""
    for done, item in enumerate(items, start=1):
        yield item
        listener.step(done)
