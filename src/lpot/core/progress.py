"""What the loop tells while it works. Listeners draw; the core knows no terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

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

    def finished(self, report: Mapping[str, Any]) -> None:
        """The tuning is over; this is its report, as report.json has it."""

    def close(self) -> None:
        """Nothing more will come for now; a listener may be used again afterwards."""


class Chorus(Listener):
    """Several listeners as one."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def phase(self, name: str, total: int | None = None) -> None:
        for listener in self.listeners:
            listener.phase(name, total)

    def expect(self, total: int) -> None:
        for listener in self.listeners:
            listener.expect(total)

    def step(self, done: int) -> None:
        for listener in self.listeners:
            listener.step(done)

    def note(self, text: str) -> None:
        for listener in self.listeners:
            listener.note(text)

    def plan(self, trials: int, timeout: float = 0.0) -> None:
        for listener in self.listeners:
            listener.plan(trials, timeout)

    def baseline(self, score: Score, goal: Goal) -> None:
        for listener in self.listeners:
            listener.baseline(score, goal)

    def begin(self, number: int, recipe: Recipe) -> None:
        for listener in self.listeners:
            listener.begin(number, recipe)

    def trial(self, trial: Trial, best: Trial | None) -> None:
        for listener in self.listeners:
            listener.trial(trial, best)

    def finished(self, report: Mapping[str, Any]) -> None:
        for listener in self.listeners:
            listener.finished(report)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()


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
