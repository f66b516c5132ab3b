"""A journal in an object store: objects can't be appended to, so each line is one of its own.

`<generation>-<number>.whole` holds all that was known; the `.part` objects of the same generation
that follow it hold a line each. Whoever takes over begins a generation with a whole of its own:
what an older holder writes late is not read. Lines carry checksums, gaps in the numbers are told.
"""

from __future__ import annotations

import re
from pathlib import Path

from lpot.jobs.storage.lease import Lease
from lpot.jobs.storage.store import ObjectStore

FOLDER = "history"
_NAME = re.compile(rf"{FOLDER}/(\d+)-(\d+)\.(whole|part)")
MOST_PARTS = 500  # objects after which a whole is written in their place


class Segments:
    """The journal as one holder of the lease writes it."""

    def __init__(self, store: ObjectStore, lease: Lease) -> None:
        self._store = store
        self._lease = lease
        self._number = -1  # of the last object; none yet
        self._parts = 0

    @property
    def has_begun(self) -> bool:
        return self._number >= 0

    def append(self, line: bytes, journal: Path) -> None:
        """Safe when this returns. `journal` is the local file, which has the line already."""
        self._lease.check()
        self._number += 1
        is_new = journal.stat().st_size == len(line)  # the one before was put aside
        if self._number == 0 or is_new or self._parts >= MOST_PARTS:
            self._write_whole(journal)
        else:
            self._store.write(self._name("part"), line)
            self._parts += 1

    def _write_whole(self, journal: Path) -> None:
        self._store.upload(journal, self._name("whole"))
        mine = (self._lease.generation, self._number)
        old = [name for name in self._store.listing(FOLDER) if (_key(name) or mine)[:2] < mine]
        self._store.delete(*old)
        self._parts = 0

    def _name(self, kind: str) -> str:
        return f"{FOLDER}/{self._lease.generation:08d}-{self._number:08d}.{kind}"


def read_segments(store: ObjectStore) -> tuple[bytes, int]:
    """The journal as it is there, and how many of its objects are missing."""
    keys = sorted((key, name) for name in store.listing(FOLDER) if (key := _key(name)))
    wholes = [key for key, _ in keys if key[2] == "whole"]
    if not wholes:
        return b"", 0
    start = wholes[-1]
    used = [(key, name) for key, name in keys if key[0] == start[0] and key[1] >= start[1]]
    missing = used[-1][0][1] - start[1] + 1 - len(used)
    return b"".join(store.read(name) for _, name in used), missing


def _key(name: str) -> tuple[int, int, str] | None:
    match = _NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]), match[3])
