"""How busy the machine was while something was timed.

A round is disturbed where its own threads were ready to run and others had the cores. That others
ran beside it, on cores that it did not need, is no disturbance.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
QUIET = 0.1  # of the time a process wanted a core: what others may take of it
OTHERS = 0.1  # cores that others must have used: less is the system's own housekeeping
SLICE = 0.003  # seconds that who runs instead keeps a core, where the system can't tell


@dataclass(frozen=True)
class Load:
    """What one process had of the machine for a while, and what others kept from it.

    >>> Load(wall=0.1, cpu=0.1, waited=0.1, others=1.0).taken
    0.5
    """

    wall: float  # seconds
    cpu: float  # of CPU time, all its threads together
    waited: float = 0.0  # that its threads were ready to run, and others were running
    others: float = 0.0  # cores, on average, that were busy with anything else
    calls: int = 1  # that were timed meanwhile

    @classmethod
    def together(cls, parts: Sequence[Load]) -> Load:
        """That of several processes side by side."""
        return cls(
            max(part.wall for part in parts),
            sum(part.cpu for part in parts),
            sum(part.waited for part in parts),
            max(part.others for part in parts),
            sum(part.calls for part in parts),
        )

    @property
    def taken(self) -> float:
        """The share of the time it wanted a core that others had instead."""
        if self.others < OTHERS or not self.waited:
            return 0.0
        return self.waited / max(self.wall, self.cpu + self.waited)

    @property
    def is_disturbed(self) -> bool:
        return self.taken > QUIET


UNKNOWN = Load(wall=1.0, cpu=1.0)  # taken for quiet


class Meter:
    """Reads the load of this process from its making to `read`.

    `counters` gives the seconds so far: wall clock, own CPU time, waiting, and all work of the
    cores that this process may use (None: the system does not tell).
    """

    def __init__(self, counters: Callable[[], Counters] | None = None) -> None:
        self._counters = counters or read_counters
        self._begin = self._counters()

    def read(self, calls: int = 1) -> Load:
        then, now = self._begin, self._counters()
        wall, cpu = max(now.wall - then.wall, 1e-9), max(0.0, now.cpu - then.cpu)
        waited = max(0.0, now.waited - then.waited)
        if then.busy is None or now.busy is None:
            return Load(wall, cpu, waited, waited / wall, calls)
        return Load(wall, cpu, waited, max(0.0, now.busy - then.busy - cpu) / wall, calls)


@dataclass(frozen=True)
class Counters:
    """Seconds that only grow."""

    wall: float
    cpu: float
    waited: float
    busy: float | None = None


def read_counters() -> Counters:
    return Counters(time.perf_counter(), time.process_time(), _waited(), _busy())


def _waited() -> float:
    """Seconds that the threads of this process waited for a core, as the scheduler counts them.

    Where it does not, they are guessed from how often a thread was put aside.
    """
    seconds, known = 0.0, False
    with contextlib.suppress(OSError):
        for thread in (PROC / "self" / "task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                seconds += int((thread / "schedstat").read_text().split()[1]) / 1e9
                known = True
    if known:
        return seconds
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return SLICE * resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _busy() -> float | None:
    """Seconds of work, whoever did it, on the cores that this process may use; steal included."""
    try:
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        ticks = os.sysconf("SC_CLK_TCK")
        lines = (PROC / "stat").read_text().splitlines()
        rows = [row.split() for row in lines if row.startswith("cpu")]
        # user, nice, system; irq, softirq, steal: idle and waiting for disks lie between.
        work = [sum(map(int, (*row[1:4], *row[6:9]))) for row in rows if row[0] in mine]
    except (AttributeError, OSError, ValueError):
        return None
    return sum(work) / ticks if work else None
