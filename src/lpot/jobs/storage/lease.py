"""One writer at a time without file locks: a lease that must be renewed, and ends by itself.

Every holder has a generation of its own, one above the last, made by creating an object that was
not there: of several who try, the store lets one succeed. The holder renews a second object; when
that stays as it is for longer than the lease lasts, by the store's clock, the next one may come.
A holder that was asleep for so long finds the higher generation before it writes again.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

from lpot.core.errors import WorkspaceBusy, WorkspaceError
from lpot.core.files.draft import is_alive
from lpot.jobs.storage.store import Absent, ObjectStore, Taken

FOLDER = "lease"
LASTS = 60.0  # seconds without renewal after which another may take over
BEAT = 10.0  # seconds between two renewals
LOOK = 1.0  # seconds between two looks at another's lease
RELEASED = b"released"
_held: set[str] = set()  # the tokens of leases that this process holds


class Lease:
    """`hold` it before anything is written; `check` it before every write."""

    def __init__(self, store: ObjectStore, note: Callable[[str], None] = lambda text: None) -> None:
        self._store = store
        self._note = note
        self._token = secrets.token_hex(8)
        self._good_until = 0.0
        self._lost = ""
        self._beats = 0
        self._over = Event()
        self._thread: Thread | None = None
        self.generation = 0

    def hold(self) -> None:
        """Take it, waiting for a holder that may be dead; WorkspaceBusy if it is not."""
        last = _generations(self._store)
        if last:
            self._wait_for(last[-1])
        self.generation = (last[-1] if last else 0) + 1
        _held.add(self._token)  # before it can be seen: another thread takes it for dead otherwise
        try:
            self._store.create(_name(self.generation), json.dumps(self._identity()).encode())
        except Taken as error:
            _held.discard(self._token)
            raise self._busy("another run, which started first,") from error
        self._renew()
        for generation in last:
            self._store.delete(_name(generation), _beat(generation))
        self._thread = Thread(target=self._keep, daemon=True)
        self._thread.start()

    def release(self) -> None:
        _held.discard(self._token)
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if not self._lost:
            with contextlib.suppress(WorkspaceError):
                self._store.write(_beat(self.generation), RELEASED)

    def check(self) -> None:
        """Raises WorkspaceError once somebody else may be writing."""
        if not self._lost and time.monotonic() > self._good_until:
            self._renew()
        if self._lost:
            raise WorkspaceError(self._lost)

    def _keep(self) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(WorkspaceError):  # the next beat tries again; `check` tells
                self._renew()

    def _renew(self) -> None:
        start = time.monotonic()
        last = _generations(self._store)
        if last and last[-1] > self.generation:
            self._lost = (
                f"{self._store.url}: the lease ended while this process could not renew it, and "
                "another run has taken over"
            )
            return
        self._beats += 1
        self._store.write(_beat(self.generation), f"{self._token} {self._beats}".encode())
        self._good_until = start + LASTS / 2

    def _wait_for(self, generation: int) -> None:
        """Until that lease has ended. One renewal seen is enough to know that it is held."""
        seen = self._read(_beat(generation))
        told, start = False, time.monotonic()
        while seen != RELEASED and not self._holder_died(generation):
            # By our own clock as well: the store's may have been set back.
            age = max(self._age(generation), time.monotonic() - start)
            if age > LASTS:
                return
            if not told:
                self._note(
                    f"{self._owner(generation)} tuned at {self._store.url} {age:.0f} s ago: "
                    f"waiting up to {LASTS - age:.0f} s to see whether it still does"
                )
                told = True
            time.sleep(LOOK)
            if self._read(_beat(generation)) not in (seen, RELEASED):
                raise self._busy(self._owner(generation))
            seen = self._read(_beat(generation))

    def _age(self, generation: int) -> float:
        """Seconds since a lease was renewed, by the store's clock alone."""
        probe = f"{FOLDER}/clock-{self._token}"
        self._store.write(probe, b"now")
        now = self._store.modified(probe)
        self._store.delete(probe)
        try:
            return now - self._store.modified(_beat(generation))
        except Absent:  # it died between its first two writes
            return now - self._store.modified(_name(generation))

    def _holder_died(self, generation: int) -> bool:
        """Known at once where it ran on this very machine."""
        holder = self._holder(generation)
        here = self._identity()
        if any(holder.get(key) != here[key] for key in ("host", "boot")):
            return False
        if holder.get("pid") == here["pid"]:
            return holder.get("token") not in _held
        return isinstance(holder.get("pid"), int) and not is_alive(holder["pid"])

    def _holder(self, generation: int) -> dict[str, Any]:
        try:
            found = json.loads(self._read(_name(generation)) or b"{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _owner(self, generation: int) -> str:
        holder = self._holder(generation)
        return f"process {holder.get('pid', '?')} on {holder.get('host', 'another machine')}"

    def _busy(self, who: str) -> WorkspaceBusy:
        return WorkspaceBusy(
            f"{self._store.url}: {who} is tuning here: wait for it, stop it, or start a separate "
            "run with --new-run"
        )

    def _read(self, name: str) -> bytes:
        try:
            return self._store.read(name)
        except Absent:
            return b""

    def _identity(self) -> dict[str, Any]:
        return {"host": host(), "boot": _boot(), "pid": os.getpid(), "token": self._token}


def host() -> str:
    return socket.gethostname()


def is_held(store: ObjectStore) -> bool:
    """Is somebody tuning there, as far as can be told without waiting?"""
    last = _generations(store)
    if not last:
        return False
    try:
        return store.read(_beat(last[-1])) != RELEASED
    except Absent:
        return False


def _boot() -> str:
    """Process numbers mean the same within one start of one system, and one container."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{started}-{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _generations(store: ObjectStore) -> list[int]:
    names = (name.rpartition("/")[2] for name in store.listing(FOLDER))
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def _name(generation: int) -> str:
    return f"{FOLDER}/{generation:08d}.json"


def _beat(generation: int) -> str:
    return f"{FOLDER}/{generation:08d}.beat"
