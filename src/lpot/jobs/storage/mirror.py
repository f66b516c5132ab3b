"""The files of a workspace in an object store, each under its own name.

A model is put there as on a disk (`core/files/publish.py`): at every moment there is one whole
model, old or new, and a card that describes what is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lpot.core.errors import HistoryError, WorkspaceError
from lpot.core.files.card import is_inside, sound_card
from lpot.core.files.draft import is_draft
from lpot.core.files.history import NAME
from lpot.core.files.untrusted import read_regular
from lpot.jobs.storage.segments import FOLDER as SEGMENTS
from lpot.jobs.storage.segments import read_segments
from lpot.jobs.storage.store import Absent, Entry, ObjectStore

CARD = ".card.json"
APART = ("history/", "lease/")  # kept in a form of their own
LOCAL = (NAME, "lock", "progress.json")
TRIES = 5  # of a look at what another is writing

Stamp = tuple[int, int]


class Mirror:
    """A folder here and its objects there, and which of them agree."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._there: dict[str, Entry] = {}  # as last pulled
        self._same: dict[str, Stamp] = {}  # files that are there as they are here
        self._journal: dict[str, Entry] | None = None

    def pull(self) -> int:
        """Make the folder what the store holds. How many objects of the journal are missing."""
        for _ in range(TRIES):
            try:
                missing = self._pull_once()
                if self._store_is_still():
                    return missing
            except Absent:  # replaced since it was listed
                continue
        raise WorkspaceError(f"{self._store.url}: changes faster than it can be read")

    def push(self) -> None:
        """Put there what has changed here, models in the order that keeps them whole."""
        here = dict(_files(self._folder))
        changed = [name for name, stamp in here.items() if self._same.get(name) != stamp]
        cards = [name for name in changed if name.endswith(CARD)]
        done: set[str] = set()
        for card in cards:
            done |= self._push_model(card, here)
        for name in changed:
            if name not in done:
                self._store.upload(self._folder / name, name)
        dropped = [name for name in self._same if name not in here]
        self._store.delete(*dropped)
        self._same = here

    def _push_model(self, card: str, here: Mapping[str, Stamp]) -> set[str]:
        """As `publish` does: the card of both, new names, the main file, the rest, its own card."""
        new, old = _read_card(self._folder / card), self._old_card(card)
        path = card.removesuffix(CARD)
        folder = f"{path}/" if new.get("main") else f"{path.rpartition('/')[0]}/".lstrip("/")
        chief = folder + str(new.get("main") or path.rpartition("/")[2])
        pieces = [folder + name for name in new.get("pieces") or {} if is_inside(name)]
        before = {folder + name for name in old.get("pieces") or {}}
        fresh = [name for name in pieces if name not in before and name != chief]
        rest = [name for name in pieces if name not in (*fresh, chief)]
        both = json.dumps({**new, "before": old or None}, indent=1, ensure_ascii=False)
        self._store.write(card, both.encode("utf-8", "backslashreplace"))
        for name in (*fresh, chief, *rest, card):
            if name in here:
                self._store.upload(self._folder / name, name)
        return {*pieces, chief, card}

    def _old_card(self, card: str) -> dict[str, Any]:
        try:
            found = json.loads(self._store.read(card))
        except (Absent, ValueError, RecursionError):
            return {}
        old = sound_card(found, Path(card))
        old.pop("before", None)
        return old

    def _pull_once(self) -> int:
        listed = self._store.listing()
        journal = {name: entry for name, entry in listed.items() if name.startswith(SEGMENTS)}
        files = {name: e for name, e in listed.items() if _is_file(name) and is_inside(name)}
        for name, entry in files.items():
            if self._there.get(name) != entry or name not in self._same:
                self._store.download(name, self._folder / name)
                self._same[name] = _stamp(self._folder / name)
        for name in [name for name in self._same if name not in files]:
            (self._folder / name).unlink(missing_ok=True)
            del self._same[name]
        self._there = files
        missing = 0
        if journal != self._journal:
            raw, missing = read_segments(self._store)
            if raw:
                (self._folder / NAME).write_bytes(raw)
            self._journal = journal
        return missing

    def _store_is_still(self) -> bool:
        """A model read while it was replaced would be half of the old and half of the new."""
        listed = self._store.listing()
        return {name: e for name, e in listed.items() if name in self._there} == self._there


def _is_file(name: str) -> bool:
    return not name.startswith(APART) and name not in LOCAL


def _files(folder: Path) -> Iterator[tuple[str, Stamp]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and _is_file(name.as_posix()) and not any(map(is_draft, name.parts)):
            yield name.as_posix(), _stamp(path)


def _stamp(path: Path) -> Stamp:
    state = path.stat()
    return state.st_mtime_ns, state.st_size


def _read_card(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise HistoryError(f"{path}: the card can't be read ({error})") from error
    return sound_card(found, path)
