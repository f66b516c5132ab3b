"""Ctrl-C once: finish the trial in flight and hand back the best. Twice: stop at once.

SIGTERM (docker stop, a preempted job) and SIGHUP are the same with a deadline: whoever sends them
kills a few seconds later. The trial in flight has a moment to end, then the program leaves with
the status that a shell expects. In either case history is told that nobody died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from lpot.core.limits import Watch
from lpot.core.progress import Listener

REASON = "interrupted by the user"
ENDED = "ended by "
GRACE = 5.0  # seconds that the trial in flight has after SIGTERM: docker gives ten in all
TERMINATIONS = tuple(
    number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)


class Terminated(SystemExit):
    """SIGTERM or SIGHUP ended the program. Never a fault of the recipe that was being tried."""


def was_interrupted(stopped: str) -> bool:
    """Is this reason to stop the wish of a user, or of the system?"""
    return stopped == REASON or stopped.startswith(ENDED)


@contextlib.contextmanager
def interruptible(watch: Watch, listener: Listener) -> Iterator[None]:
    """Only the main thread of a process can do this; elsewhere signals keep their meaning."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = _Signals(watch, listener)
    with signals.handled():
        yield
    if signals.status:
        raise Terminated(signals.status)


class _Signals:
    """What came so far, and what is to be done when more comes."""

    def __init__(self, watch: Watch, listener: Listener) -> None:
        self.watch = watch
        self.listener = listener
        self.status = 0  # to leave the program with; 0 if it goes on
        self._asked = False
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        before = {signal.SIGINT: signal.signal(signal.SIGINT, self._on_interrupt)}
        for number in TERMINATIONS:
            old = signal.getsignal(number)
            # None: set by a library in C, and out of reach. Ignored: `nohup` means it.
            if old is not None and old != signal.SIG_IGN:
                before[number] = signal.signal(number, self._on_termination(old))
        _installed.append(before)
        try:
            yield
        finally:
            if before in _installed:  # not in a child that eval_func forked: they are back there
                _installed.remove(before)
                _put_back(before)
            if self._timer is not None:
                self._timer.cancel()

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._ask(REASON, "stopping after this trial; press Ctrl-C again to stop at once")

    def _on_termination(self, before: Any) -> Callable[[int, FrameType | None], None]:
        def on_signal(number: int, frame: FrameType | None) -> None:
            name = signal.Signals(number).name
            again = self._asked
            self._ask(f"{ENDED}{name}", f"{name}: stopping; run the same command again to resume")
            if callable(before):  # the program has a way of its own to end
                try:
                    before(number, frame)
                except SystemExit as error:
                    raise Terminated(error.code) from None
                return
            self.status = 128 + number
            if again:
                raise Terminated(self.status)
            self._timer = threading.Timer(GRACE, os.kill, (os.getpid(), number))
            self._timer.daemon = True
            self._timer.start()

        return on_signal

    def _ask(self, reason: str, text: str) -> None:
        if self._asked:
            return
        self._asked = True
        self.watch.request_stop(reason)
        self.watch.leave()
        # The signal may fall into the middle of a write: a word lost is better than a trial.
        with contextlib.suppress(RuntimeError):
            self.listener.note(text)


_installed: list[dict[signal.Signals, Any]] = []


def _put_back(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _hold() -> None:
    """A signal must find a forked child with its own handlers: until then it waits."""
    if _installed:
        _held.append(signal.pthread_sigmask(signal.SIG_BLOCK, TERMINATIONS))


def _let_go() -> None:
    while _held:
        signal.pthread_sigmask(signal.SIG_SETMASK, _held.pop())


def _forget_in_child() -> None:
    """A child that eval_func forks (a loader's worker) ends when told to, and tells nobody."""
    while _installed:
        with contextlib.suppress(ValueError):  # forked from another thread
            _put_back(_installed.pop())
    _let_go()


_held: list[Any] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_forget_in_child)
