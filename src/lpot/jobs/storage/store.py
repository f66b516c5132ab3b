"""Objects under one URL: put whole or not at all, listed, read. Every fault is a WorkspaceError."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lpot.core.errors import ConfigError, WorkspaceError, did_you_mean
from lpot.core.tune import guarded

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
# What tells two versions of an object apart; each kind of store has some of these.
_STAMPS = ("size", "ETag", "etag", "md5Hash", "generation", "LastModified", "created", "mtime")


class Absent(WorkspaceError):
    """There is no such object."""


class Taken(WorkspaceError):
    """An object of that name is there already."""


@dataclass(frozen=True)
class Entry:
    """One object of a listing."""

    name: str
    size: int
    version: tuple[str, ...]


class ObjectStore:
    """What lies under one URL, by names relative to it."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs, root = _open(self.url)
        self._root = str(root).rstrip("/")

    def listing(self, under: str = "") -> dict[str, Entry]:
        """All objects as they are now, whoever wrote them."""
        place = self._place(under) if under else self._root
        self._fs.invalidate_cache()
        found = self._try("list", under, lambda: self._fs.find(place, detail=True))
        entries = {}
        for path, info in found.items():
            name = str(path).removeprefix("/").removeprefix(self._root.removeprefix("/") + "/")
            version = tuple(str(info.get(stamp)) for stamp in _STAMPS)
            entries[name] = Entry(name, int(info["size"]), version)
        return entries

    def read(self, name: str) -> bytes:
        found = self._try("read", name, lambda: self._fs.cat_file(self._place(name)))
        return bytes(found)

    def write(self, name: str, raw: bytes) -> None:
        self._try("write", name, lambda: self._fs.pipe_file(self._place(name), raw))

    def create(self, name: str, raw: bytes) -> None:
        """Raises Taken if there is one: of several who try at once, one succeeds."""
        place = self._place(name)
        self._try("write", name, lambda: self._fs.pipe_file(place, raw, mode="create"))

    def upload(self, source: Path, name: str) -> None:
        self._try("write", name, lambda: self._fs.put_file(str(source), self._place(name)))

    def download(self, name: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._try("read", name, lambda: self._fs.get_file(self._place(name), str(target)))

    def delete(self, *names: str) -> None:
        """What is gone already, or can't be removed, costs room and nothing else."""
        for name in names:
            failed = guarded(partial(self._fs.rm_file, self._place(name)))
            if isinstance(failed, Exception):
                logger.debug("%s/%s is not removed: %s", self.url, name, failed)

    def modified(self, name: str) -> float:
        """By the store's own clock."""
        self._fs.invalidate_cache()
        found = self._try("read", name, lambda: self._fs.modified(self._place(name)))
        return float(found.timestamp())

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _try(self, verb: str, name: str, work: Callable[[], Value]) -> Value:
        """Stores raise what they like; credentials and networks fail in a hundred ways."""
        made = guarded(work)
        if isinstance(made, FileExistsError):
            raise Taken(f"{self.url}/{name}: already exists") from made
        if isinstance(made, FileNotFoundError):
            raise Absent(f"{self.url}/{name}: not found ({made})") from made
        if isinstance(made, Exception):
            raise WorkspaceError(f"{self.url}/{name}: can't {verb} ({made})") from made
        return made


def _open(url: str) -> tuple[Any, str]:
    protocol = url.partition("://")[0]
    try:
        import fsspec
    except ImportError:
        raise ConfigError(
            f"given {url}, which needs the package 'fsspec': pip install 'lpot[remote]'",
            path="workspace",
        ) from None
    known = sorted(fsspec.available_protocols())
    if protocol not in known:
        raise ConfigError(
            f"given {url}, whose {protocol}:// is unknown to fsspec: expected one such as s3, gs, "
            f"az, hdfs or memory{did_you_mean(protocol, known)}",
            path="workspace",
        )
    made = guarded(lambda: fsspec.url_to_fs(url))
    if isinstance(made, ImportError):
        raise ConfigError(
            f"given {url}, which needs another package ({made}): pip install 'lpot[remote]' for "
            "s3://, gcsfs for gs://, adlfs for az://",
            path="workspace",
        ) from made
    if isinstance(made, Exception):
        raise WorkspaceError(f"{url}: can't be opened ({made})") from made
    return made[0], str(made[1])
