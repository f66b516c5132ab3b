"""A workspace at a URL: a run works in a folder here, and all that it finds is kept there.

A line of the history is there before the next trial begins, the best model before it is told: a
run that was started on one machine goes on from any other.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from lpot.core.errors import WorkspaceError
from lpot.core.files.draft import is_alive
from lpot.core.files.journal import Fingerprint, differences, is_of, key_of, question_of
from lpot.core.files.workspace import Workspace, fresh_folder, safe_name
from lpot.jobs.storage.lease import Lease, is_held
from lpot.jobs.storage.mirror import Mirror
from lpot.jobs.storage.segments import Segments
from lpot.jobs.storage.store import ObjectStore

logger = logging.getLogger(__name__)

_URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*)://")


def is_url(place: str | Path) -> bool:
    """`file://` is none: a disk has locks and renames of its own, and needs no lease."""
    match = _URL.match(str(place))
    return match is not None and match[1] not in ("file", "local")


def as_path(place: str | Path) -> Path:
    """A local place; `file:///x` is `/x`, and `~` the user's own folder."""
    text = re.sub(r"^(file|local)://", "", str(place))
    return Path(os.path.expanduser(text))  # noqa: PTH111 - Path's may raise


def workspace_at(place: str | Path, new_run: bool = False) -> Workspace:
    """The workspace of a path or URL; with `new_run` a sibling that nobody has used."""
    if not is_url(place):
        folder = as_path(place)
        return Workspace(fresh_folder(folder) if new_run and folder.exists() else folder)
    url, number = str(place).rstrip("/"), 1
    found = ObjectStore(url)
    while new_run and found.listing():
        number += 1
        found = ObjectStore(f"{url}-run{number}")
    return RemoteWorkspace(found)


def own_workspace(
    place: str | Path, question: Fingerprint, beside: bool = False
) -> tuple[Workspace, str]:
    """The workspace of one question at a place, and why it is not that very place.

    What answers another question stays as it is: this one's folder lies inside, or `beside` where
    nobody chose the place. Its name is that of the model where this alone differs.
    """
    first = workspace_at(place)
    there = question_of(first.history)
    if there is None or is_of(there, question):
        return first, ""
    model, key = question["model"][:8], key_of(question)[:8]
    names = [key] if isinstance(there, str) or there.get("model") == question["model"] else [model]
    names += [f"{model}-{key}"] * (names != [key])
    found: list[Workspace] = []
    for name in names:
        inside = f"{str(place).rstrip('/')}/{name}"
        is_near = beside or is_url(place)
        other = workspace_at(f"{str(place).rstrip('/')}-{name}" if is_near else inside)
        theirs = question_of(other.history)
        if theirs is not None and is_of(theirs, question):
            found = [other]
            break
        found += [other] if theirs is None else []
    chosen = found[0] if found else workspace_at(f"{place}-{key}", new_run=True)
    why = "; ".join(differences(there, question)) if isinstance(there, dict) else "another run"
    where = getattr(chosen, "url", chosen.folder)
    return chosen, (
        f"{place} holds the answer to another question ({why}): it stays as it is, and this run "
        f"is kept in {where}"
    )


def fetched(place: str | Path) -> Path:
    """A place to read from: the path itself, or a copy of what lies at the URL now.

    A file inside of a workspace, such as its history, may be named as well.
    """
    if not is_url(place):
        return as_path(place)
    url, name = str(place).rstrip("/"), ""
    head, _, last = url.rpartition("/")
    if last == "history.jsonl" or Path(last).suffix in (".onnx", ".json", ".yaml"):
        url, name = head, last
    store = ObjectStore(url)
    folder = scratch(store.url)
    Mirror(store, folder).pull()
    if not any(folder.iterdir()):
        raise WorkspaceError(f"{url}: neither a workspace nor a model was found there")
    if is_held(store):
        (folder / "lock").write_text(f'{{"pid": {os.getpid()}}}')  # shown as under way
    return folder / name


def scratch(url: str) -> Path:
    """A folder for this process and this URL; those of processes that are gone are removed."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lpot"
    key = hashlib.sha256(url.encode()).hexdigest()[:8]
    place = root / f"{safe_name(url.partition('://')[2])[-40:]}-{key}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        for old in place.iterdir():
            number = old.name.partition("-")[0]
            if number.isdecimal() and not is_alive(int(number)):
                shutil.rmtree(old, ignore_errors=True)
        folder = place / f"{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir()
    except OSError as error:
        raise WorkspaceError(
            f"{place}: can't be written ({error.strerror}): set XDG_CACHE_HOME to a writable folder"
        ) from error
    return folder


class RemoteWorkspace(Workspace):
    """Works in a folder of this machine, and keeps everything at a URL."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(scratch(store.url))
        self.url = store.url
        self._store = store
        self._mirror = Mirror(store, self.folder)
        self._missing = self._mirror.pull()
        self._segments: Segments | None = None
        self._lease: Lease | None = None

    def check(self, needed: int) -> None:
        super().check(needed)
        probe = f"probe-{secrets.token_hex(4)}"
        self._store.write(probe, b"lpot")
        self._store.delete(probe)

    @contextlib.contextmanager
    def lock(self, note: Callable[[str], None] = lambda text: None) -> Iterator[None]:
        lease = Lease(self._store, note)
        lease.hold()
        try:
            with super().lock(note):
                self._missing = self._mirror.pull() or self._missing  # another may have gone on
                if self._missing:
                    note(f"warning: {self._missing} object(s) of the history are gone")
                self._lease, self._segments = lease, Segments(self._store, lease)
                note(f"everything is kept at {self.url}")
                yield
                self._sync_in_the_end()
        finally:
            self._lease = self._segments = None
            lease.release()

    def _sync_in_the_end(self) -> None:
        """The result is made and lies here: a store that is away must not cost it."""
        try:
            self.sync()
        except WorkspaceError as error:
            logger.warning("%s: the result is in %s; run again to upload it", error, self.folder)

    def copy_line(self, line: bytes) -> None:
        if self._segments is not None:
            is_new = self.history.stat().st_size == len(line)
            if is_new or not self._segments.has_begun:
                self.sync()  # what was put aside is safe before its objects go
            self._segments.append(line, self.history)

    def sync(self) -> None:
        if self._lease is not None:
            self._lease.check()
            self._mirror.push()
