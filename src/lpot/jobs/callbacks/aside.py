"""Listeners that write elsewhere: on a thread of their own, and never in the tuning's way."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lpot.core.goal import Goal
from lpot.core.progress import Chorus, Listener
from lpot.core.trial import Score, Trial
from lpot.core.tune import guarded
from lpot.jobs.tune.plan import Plan

logger = logging.getLogger(__name__)

MOST_WAITING = 1000  # events; more are dropped, for history has them anyway
PATIENCE = 5.0  # seconds that the end of a tuning waits for what is still to be written


class Aside(Listener):
    """Passes on what a log wants to know; whatever fails or hangs there stays there.

    Args:
        listener: gets `baseline`, `trial`, `note`, `finished` and `close`, on another thread.
    """

    def __init__(self, listener: Listener, patience: float = PATIENCE) -> None:
        self.listener = listener
        self.patience = patience
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._failures = 0

    def note(self, text: str) -> None:
        self._later(lambda: self.listener.note(text))

    def plan(self, trials: int, timeout: float = 0.0) -> None:
        self._later(lambda: self.listener.plan(trials, timeout))

    def baseline(self, score: Score, goal: Goal) -> None:
        self._later(lambda: self.listener.baseline(score, goal))

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self._later(lambda: self.listener.trial(trial, best))

    def finished(self, report: Mapping[str, Any]) -> None:
        self._later(lambda: self.listener.finished(report))

    def close(self) -> None:
        if self._thread is None:
            return
        self._later(self.listener.close)
        self._later(None)
        self._thread.join(self.patience)
        if self._thread.is_alive():
            logger.warning("%s is still busy: the tuning does not wait for it", self._name)
        self._thread = None

    @property
    def _name(self) -> str:
        return type(self.listener).__name__

    def _later(self, work: Callable[[], None] | None) -> None:
        if self._thread is None and work is not None:
            self._thread = threading.Thread(target=self._run, name="lpot-log", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            logger.debug("%s is too slow: an event was dropped", self._name)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            error = guarded(work)
            if isinstance(error, Exception):
                self._failures += 1
                level = logging.WARNING if self._failures == 1 else logging.DEBUG
                logger.log(level, "%s failed, the tuning continues: %s", self._name, error)


@contextlib.contextmanager
def called_back(plan: Plan) -> Iterator[Listener]:
    """The user's own listener, with what the configuration asks for beside it."""
    listener = plan.request.listener
    if not plan.config.tuning.tensorboard:
        yield listener
        return
    from lpot.jobs.callbacks.tensorboard import FOLDER, TensorboardListener

    aside = Aside(TensorboardListener(plan.workspace.folder / FOLDER))
    try:
        yield Chorus(listener, aside)
    finally:
        aside.close()
