"""Trials in processes of their own: a crash costs one trial, and several run side by side."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread

from lpot.core.cpu import usable_cores
from lpot.core.errors import LpotError
from lpot.core.recipe import Recipe
from lpot.core.trial import Trial
from lpot.core.tune import Attempt, Made, Numbered, guarded
from lpot.jobs.benchmark.team import threading
from lpot.jobs.execute.dump import Shipment
from lpot.jobs.execute.kit import Kit, unpack

# -- What one trial may take, and how it is told when it took more.


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


logger = logging.getLogger(__name__)

POLL = 0.2  # seconds between two looks at a trial's memory and time
START = 300.0  # seconds a process may take to load the model
_READY = "ready"


class Processes:
    """So many processes, started when first needed and again when one dies.

    `memory` (bytes) and `timeout` (seconds) are the limits of one trial; 0 is none.
    """

    def __init__(
        self,
        kit: Callable[[], Shipment],
        workers: int,
        memory: int = 0,
        timeout: float = 0.0,
        begin: Callable[[int, Recipe], None] = lambda number, recipe: None,
    ) -> None:
        self._make_kit = kit
        self._kit: Shipment | None = None
        self._count = workers
        self._memory = memory
        self._timeout = timeout
        self._begin = begin  # told of every trial that begins
        self._clock = Awake()
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []

    def __call__(self, attempt: Attempt, recipes: Iterable[Numbered]) -> Iterator[Made]:
        self._kit = self._kit or self._make_kit()
        waiting = iter(recipes)
        while True:
            self._hand_out(waiting)
            if not self._busy:
                return
            for trial in self._finished():
                yield trial, None

    def close(self) -> None:
        for worker in (*self._idle, *self._busy):
            worker.end()
        self._idle, self._busy = [], []

    def _hand_out(self, waiting: Iterator[Numbered]) -> None:
        """A recipe for each process that has none, as long as there are any."""
        assert self._kit is not None
        while len(self._busy) < self._count:
            order = next(waiting, None)
            if order is None:
                return
            worker = (
                self._idle.pop() if self._idle else _Worker(self._kit, self._count, self._clock)
            )
            self._begin(*order)
            worker.begin(*order)
            self._busy.append(worker)

    def _finished(self) -> Iterator[Trial]:
        """The trials that ended within a moment, those ended by a limit or a crash included."""
        # A process may be dead and its pipe still open, in the hands of a child that it forked: the
        # look at the process itself comes with the next turn.
        wait([worker.connection for worker in self._busy], POLL)
        self._clock.look()
        for worker in list(self._busy):
            trial = worker.result(self._memory, self._timeout)
            if trial is not None:
                self._busy.remove(worker)
                if worker.alive:
                    self._idle.append(worker)
                yield trial


class _Worker:
    """One process, and the trial it is at."""

    def __init__(self, kit: Shipment, workers: int, clock: Awake) -> None:
        self._clock = clock
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        # No daemon: those may have no children, and a loader with workers has some.
        self._process = context.Process(target=_serve, args=(theirs,), daemon=False)
        with _environment(threading(max(1, len(usable_cores()) // workers), 1)):
            self._process.start()
        theirs.close()
        self.alive = True
        self._ready = False  # the model is loaded
        self._number = 0
        self._recipe = Recipe({})
        self._began = self._clock.look()
        with contextlib.suppress(OSError):  # it died at once: `result` tells
            _send(self.connection, kit)

    def begin(self, number: int, recipe: Recipe) -> None:
        self._number, self._recipe, self._began = number, recipe, self._clock.look()
        with contextlib.suppress(OSError):  # it died while idle: `result` tells
            self.connection.send((number, recipe))

    def result(self, memory: int, timeout: float) -> Trial | None:
        """The trial if it is over, None if it goes on."""
        if not self._ready:
            self._load()
            return None
        spent = self._clock.seconds - self._began
        if self.connection.poll():
            trial = guarded(self.connection.recv)
            if isinstance(trial, EOFError | OSError):
                return self._failed(TrialEnded(self._cause()), spent)
            if not isinstance(trial, Trial):
                said = "the code it runs wrote to the pipe that lpot uses"
                return self._failed(TrialEnded(said), spent)
            return trial
        if not self._process.is_alive() and not self.connection.poll():
            return self._failed(TrialEnded(self._cause()), spent)
        used = resident(self._process.pid) if memory else 0
        if memory and used > memory:
            return self._failed(over_memory(used, memory), spent)
        if timeout and spent > timeout:
            return self._failed(over_time(timeout), spent)
        return None

    def end(self) -> None:
        """Kill the process with all it started."""
        self.alive = False
        pid = self._process.pid
        if pid is not None and hasattr(os, "killpg"):
            with contextlib.suppress(OSError):  # gone, or not yet the head of a group of its own
                os.killpg(pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self.connection.close()

    def _load(self) -> None:
        """Look whether the model is loaded; a process that can't is no fault of a recipe."""
        spent = self._clock.seconds - self._began
        if not self.connection.poll():
            if not self._process.is_alive() and not self.connection.poll():
                raise self._unstarted()
            if spent > START:
                raise self._unusable(f"it was not ready within {START:g} s")
            return
        try:
            answer = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._unstarted() from error
        if answer != _READY:
            raise self._unusable(str(answer))
        self._ready, self._began = True, self._clock.seconds

    def _unstarted(self) -> LpotError:
        cause = self._cause()
        return self._unusable(
            f"it could not be started ({cause}). A script that tunes must do so under "
            '`if __name__ == "__main__":`, since each process imports it again'
        )

    def _unusable(self, cause: str) -> LpotError:
        self.end()
        return LpotError(f"executor: process: a trial process failed: {cause}")

    def _failed(self, cause: TrialEnded, spent: float) -> Trial:
        self.end()
        return Trial.failed(self._number, self._recipe, cause, spent)

    def _cause(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is None:
            return "its process closed its pipe"
        if code < 0:
            hint = " (out of memory?)" if code == -signal.SIGKILL else ""
            return f"its process was killed by {signal.Signals(-code).name}{hint}"
        return f"its process ended with status {code}"


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set while a process starts: libraries read these when they are first imported."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _serve(connection: Connection) -> None:
    """The child: load once, then one trial after the other until the parent hangs up."""
    _stand_alone()
    kit = _receive(connection)
    bench = guarded(kit.open)
    if isinstance(bench, Exception):
        connection.send(f"{type(bench).__name__}: {bench}")
        return
    connection.send(_READY)
    with contextlib.suppress(EOFError, OSError):
        while True:
            number, recipe = connection.recv()
            connection.send(kit.attempt(bench, number, recipe))


def _send(connection: Connection, kit: Shipment) -> None:
    connection.send_bytes(kit.head)
    connection.send(kit.sizes)
    for chunk in kit.chunks():
        connection.send_bytes(chunk)  # type: ignore[arg-type]


def _receive(connection: Connection) -> Kit:
    head, sizes = connection.recv_bytes(), connection.recv()
    return unpack(head, sizes, iter(connection.recv_bytes, None))


def _stand_alone() -> None:
    """A group of its own, which can be ended as a whole; the parent decides what Ctrl-C means.

    It ends with the parent, however that ends, and in the middle of a trial.
    """
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """Asked for once a second: a pipe would stay open in whatever the parent has forked."""
    while os.getppid() == parent:
        time.sleep(1.0)
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
