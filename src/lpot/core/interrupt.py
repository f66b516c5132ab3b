"""Ctrl-C once: finish the trial in flight and hand back the best. Twice: stop at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from lpot.core.limits import Watch
from lpot.core.progress import Listener

REASON = "interrupted by the user"


@contextlib.contextmanager
def interruptible(watch: Watch, listener: Listener) -> Iterator[None]:
    """Only the main thread of a process can do this; elsewhere Ctrl-C keeps its meaning."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        watch.request_stop(REASON)
        # The signal may fall into the middle of a write: a word lost is better than a trial.
        with contextlib.suppress(RuntimeError):
            listener.note("stopping after this trial; press Ctrl-C again to stop at once")

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        # None: set by a library in C, and out of reach
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
