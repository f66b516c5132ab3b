"""What one trial may take, and how it is told when it took more."""

from __future__ import annotations

import os
import time
from pathlib import Path

MOST = 5.0  # seconds between two looks, above which this process must have been stopped


class Awake:
    """A clock that stands still while this process does (SIGSTOP, a debugger, a full machine).

    What waits for another process must not blame it for the time in which nobody was looking.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last = time.monotonic()

    def look(self) -> float:
        now = time.monotonic()
        self.seconds += min(now - self._last, MOST)
        self._last = now
        return self.seconds


class TrialEnded(Exception):
    """A trial's process died, or was ended because it took too much. Becomes the trial's cause."""


def over_memory(used: int, allowed: int) -> TrialEnded:
    return TrialEnded(
        f"it used {used >> 20} MiB of the {allowed >> 20} MiB that `tuning.executor.memory` "
        "allows: its process was terminated"
    )


def over_time(allowed: float) -> TrialEnded:
    return TrialEnded(
        f"it took longer than the {allowed:g} s that `tuning.executor.timeout` allows: its "
        "process was terminated"
    )


def resident(pid: int | None) -> int:
    """Bytes of memory that a process holds now; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
