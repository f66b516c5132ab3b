"""The parent's end of a contestant's process: start, tell, hear, halt, wake, end."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The child gets the parent's module path as it is, and is pinned before any library starts threads.
_BOOT = """
import json, os, sys
given = json.loads(sys.argv[1])
sys.path[:] = given["path"]
if given["cores"]:
    os.sched_setaffinity(0, given["cores"])
from lpot.jobs.benchmark.contestant import main
main()
"""
HALT_SECONDS = 1.0  # waited for a halt at most
CAN_HALT = hasattr(signal, "SIGSTOP") and os.name == "posix"


class ChildFailed(Exception):
    """The process ended, was too slow, or said what went wrong. Never leaves the benchmark."""


class Child:
    """One process. Its stderr goes to `log`; `end` must be called, and may be called twice."""

    def __init__(
        self, environment: Mapping[str, str], log: Path, cores: Sequence[int] = ()
    ) -> None:
        self._log = log
        self._ended = False
        given = json.dumps({"path": sys.path, "cores": list(cores)})
        with log.open("wb") as stderr:
            # A group of its own in our session: it can be halted and ended as a whole, Ctrl-C does
            # not reach it, and if we are killed the kernel wakes it and hangs up on it.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, given],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **environment},
                process_group=0 if os.name == "posix" else None,
            )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, order: Mapping[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(order).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise ChildFailed(self._cause()) from error

    def hear(self, timeout: float) -> dict[str, Any]:
        """The answer to the last order."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.end()
            raise ChildFailed(f"no answer within {timeout:g} s: it was terminated") from None
        if not line:
            raise ChildFailed(self._cause())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildFailed(answer["error"])
        return answer

    def halt(self) -> None:
        """Stop it in its tracks: idle thread pools spin, and would slow down whoever runs."""
        if not CAN_HALT:
            return
        self._signal(signal.SIGSTOP)
        # Each thread halts when it is next on a core, which on a busy machine takes a while.
        end = time.monotonic() + HALT_SECONDS
        while not self._is_halted() and time.monotonic() < end:
            time.sleep(0.0005)

    def wake(self) -> None:
        if CAN_HALT:
            self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill the process with all it started. A halted process can be killed too."""
        if self._ended:
            return
        self._ended = True
        if os.name == "posix":
            self._signal(signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # an order it can no longer read
                    continue

    def _is_halted(self) -> bool:
        """Halted or gone; the process is not reaped by asking."""
        if not hasattr(os, "waitid"):
            return True
        flags = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # gone already; its end shows at the next order

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _cause(self) -> str:
        """Why it ended: the last line it wrote to stderr, or the signal that killed it."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.end()
            return "it closed its pipe but kept running: it was terminated"
        lines = self._log.read_text("utf-8", errors="replace").strip().splitlines()
        last = f": {lines[-1].strip()}" if lines else ""
        if code < 0:
            hint = " (out of memory?)" if code == -signal.SIGKILL else ""
            return f"killed by {signal.Signals(-code).name}{hint}{last}"
        return f"ended with status {code}{last}"
