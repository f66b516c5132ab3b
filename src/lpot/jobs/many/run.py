"""Rows of a matrix side by side: each model in a process of its own, here or on a Ray cluster.

The process is `lpot tune-row`, which reads a row and writes a line of JSON for each cell.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Lock
from typing import Any

from lpot.config.schema_matrix import Matrix
from lpot.core.interrupt import TERMINATIONS
from lpot.jobs.execute.ray_cluster import Cluster, Demand
from lpot.jobs.many.board import Board, Outcome, sound_outcome
from lpot.jobs.many.plan import Cell, Row, rows, share

# How a process ends that was asked to: by itself, or because it had not begun to listen.
INTERRUPTED = {sign for n in (signal.SIGINT, *TERMINATIONS) for sign in (128 + n, -n)}
LONGEST_LINE = 1 << 26  # characters; a result has far fewer
CALL = (sys.executable, "-m", "lpot.cli", "tune-row")
Report = Callable[[Cell, Outcome], None]
Work = Callable[[Row, float, Report], None]


class Budget:
    """Seconds for everything together; 0 is no limit."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.monotonic()

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - (time.monotonic() - self._start))

    @property
    def is_over(self) -> bool:
        return self.seconds > 0 and self.left <= 0


def tune_all(matrix: Matrix, told: Callable[[str], None]) -> Board:
    """Every cell that is not done yet; the board as it stands in the end."""
    every = rows(matrix)
    board = Board(matrix.workspace, every)
    board.save()
    waiting = [row for row in map(board.left_of, every) if row.cells]
    if board.finished:
        told(f"{board.finished} of {len(board.cells)} tunings are done already")

    one_at_a_time = Lock()  # rows report from threads of their own

    def report(cell: Cell, outcome: Outcome) -> None:
        with one_at_a_time:
            board.put(cell, outcome)
            told(f"{board.finished}/{len(board.cells)}  {cell.name}: {_words(outcome)}")

    with _place(matrix) as work:
        _side_by_side(waiting, matrix, work, report)
    return board


class Children:
    """The processes of rows here, and what they are told when this one is told to end.

    They have groups of their own: a terminal's Ctrl-C reaches them once, through us, and not twice.
    """

    def __init__(self) -> None:
        self.told = 0  # the signal that came last
        self._running: set[subprocess.Popen[str]] = set()

    @contextlib.contextmanager
    def heeding(self) -> Iterator[None]:
        """In this block signals are passed on: each child leaves as `lpot tune` does."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.told = 0
        before = {n: signal.getsignal(n) for n in (signal.SIGINT, *TERMINATIONS)}
        heeded = {n: old for n, old in before.items() if old not in (None, signal.SIG_IGN)}
        for number in heeded:
            signal.signal(number, self._pass_on)
        try:
            yield
        finally:
            for number, old in heeded.items():
                signal.signal(number, old)

    @contextlib.contextmanager
    def running(self, process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
        self._running.add(process)
        if self.told:  # it came while the process was being started
            process.send_signal(self.told)
        try:
            with process:
                yield process
        finally:
            self._running.discard(process)

    def _pass_on(self, number: int, frame: Any) -> None:
        self.told = number
        for process in list(self._running):
            process.send_signal(number)


children = Children()


def _side_by_side(waiting: list[Row], matrix: Matrix, work: Work, report: Report) -> None:
    """The next row begins when one ends; it gets its share of the time that is left then."""
    budget = Budget(matrix.timeout)
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(matrix.workers) as threads:
        try:
            while (waiting and not budget.is_over and not children.told) or running:
                while waiting and len(running) < matrix.workers and not budget.is_over:
                    if children.told:
                        break
                    seconds = share(budget.left, waiting[0], waiting, matrix.workers)
                    row = waiting.pop(0)
                    running.add(threads.submit(work, row, seconds, report))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        finally:
            waiting.clear()


def _words(outcome: Outcome) -> str:
    if outcome.error:
        return f"failed: {outcome.error}"
    result = outcome.result or {}
    met = {True: "bar met", False: "bar missed", None: "not evaluated"}[result.get("met")]
    speed, verdict = result.get("speed"), result.get("verdict") or {}
    fast = "" if speed is None or result.get("slower") else f", {speed:.2f}× as fast"
    return f"{verdict.get('brief', met)}{fast}"


# -- where rows are made ---------------------------------------------------------------------


@contextlib.contextmanager
def _place(matrix: Matrix) -> Iterator[Work]:
    if matrix.executor == "process":
        with children.heeding():
            yield work_here
        return
    cluster = Cluster(matrix.address)
    cluster.join()
    try:
        yield _work_on(cluster, Demand.of(matrix.ray, 0))
    finally:
        cluster.leave()


def work_here(row: Row, seconds: float, report: Report) -> None:
    """A crash costs the cell it happens in: the others get another process."""
    deadline = time.monotonic() + seconds
    while row.cells:
        left = max(1.0, deadline - time.monotonic()) if seconds else 0.0
        made = 0
        with children.running(_start(row, left)) as process:
            assert process.stdout is not None
            # The user's code may print without end, and without lines.
            for line in iter(partial(process.stdout.readline, LONGEST_LINE), ""):
                outcome = read_outcome(line)
                if outcome is not None and made < len(row.cells):
                    report(row.cells[made], outcome)
                    made += 1
        row = _rest(row, made, process.returncode, report)


def _start(row: Row, seconds: float) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(CALL, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once: its status tells
        process.stdin.write(json.dumps({**row.to_json(), "seconds": seconds}))
        process.stdin.close()
    return process


def _rest(row: Row, made: int, status: int, report: Report) -> Row:
    """The cells after the one that ended the process; none if it ended by itself."""
    if made == len(row.cells):
        return Row(row.model, row.priority, ())
    cause = signal.Signals(-status).name if status < 0 else f"status {status}"
    if status in INTERRUPTED:
        report(row.cells[made], Outcome(interrupted=True))
        return Row(row.model, row.priority, ())
    report(row.cells[made], Outcome(error=f"its process ended with {cause}"))
    return Row(row.model, row.priority, row.cells[made + 1 :])


def _work_on(cluster: Cluster, demand: Demand) -> Work:
    options = {**demand.options(), "max_retries": 3}
    del options["max_restarts"], options["max_task_retries"]
    task = cluster.ray.remote(**options)(_row_on_node)

    def work(row: Row, seconds: float, report: Report) -> None:
        for index, raw in cluster.ray.get(task.remote(row.to_json(), seconds)):
            report(row.cells[index], Outcome(**raw))

    return work


def _row_on_node(raw: dict[str, Any], seconds: float) -> list[tuple[int, dict[str, Any]]]:
    """On the node: the same process as at home, whose outcomes are sent back together."""
    row = Row.from_json(raw)
    found: list[tuple[int, dict[str, Any]]] = []
    indices = {cell.name: index for index, cell in enumerate(row.cells)}
    work_here(row, seconds, lambda cell, made: found.append((indices[cell.name], vars(made))))
    return found


def read_outcome(line: str) -> Outcome | None:
    """A line of a child; what the user's own code prints is none."""
    try:
        return sound_outcome(json.loads(line)["lpot_cell"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
