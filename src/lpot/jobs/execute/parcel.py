"""A model's files on their way to the nodes of a cluster: as buffers, and to each node once.

Where the same file lies at the same place already (a shared disk, this machine) nothing is sent.
Elsewhere the first worker of a node writes it to the node's cache, one chunk at a time; the others
of that node wait for it. Weights are never pickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.files.card import sha256
from lpot.core.files.draft import beside
from lpot.jobs.execute.dump import CHUNK


@dataclass(frozen=True)
class Piece:
    """One file: its name below the model's place, and how to know it again."""

    name: str
    size: int
    modified: int
    digest: str


@dataclass(frozen=True)
class Parcel:
    """The files of a model that was given as a path."""

    source: str
    folder: bool  # the source is a folder, and names are relative to it
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, source: Any) -> Parcel | None:
        """None for what is no path: an object of the framework goes with the kit."""
        if not isinstance(source, str | os.PathLike) or not Path(source).exists():
            return None
        path = Path(source).absolute()
        root = path if path.is_dir() else path.parent
        found = sorted(file for file in _files(path) if file.is_file())
        pieces = (
            Piece(
                file.relative_to(root).as_posix(),
                file.stat().st_size,
                file.stat().st_mtime_ns,
                sha256(file),
            )
            for file in found
        )
        return cls(str(path), path.is_dir(), tuple(pieces))

    @property
    def key(self) -> str:
        told = repr([(piece.name, piece.digest) for piece in self.pieces])
        return hashlib.sha256(told.encode()).hexdigest()[:24]

    @property
    def root(self) -> Path:
        return Path(self.source) if self.folder else Path(self.source).parent

    def is_here(self) -> bool:
        """Does this machine see the very files?"""
        try:
            states = [(piece, (self.root / piece.name).stat()) for piece in self.pieces]
        except OSError:
            return False
        return all((s.st_size, s.st_mtime_ns) == (p.size, p.modified) for p, s in states)

    def chunks(self) -> Iterator[np.ndarray]:
        """All pieces, one after the other, as they lie in the page cache."""
        for piece in self.pieces:
            with (self.root / piece.name).open("rb") as stream:
                if not piece.size:
                    continue
                view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                for start in range(0, piece.size, CHUNK):
                    yield np.frombuffer(view, np.uint8, min(CHUNK, piece.size - start), start)

    def unpack(self, chunks: Iterator[np.ndarray], said: Callable[[str], None]) -> str:
        """Where the model is on this machine, written there if need be."""
        if self.is_here():
            return self.source
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        place = cache / "lpot" / "models" / self.key
        place.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(place.with_suffix(".lock")):
            if not (place / ".whole").is_file():
                said(f"receiving {Path(self.source).name}")
                self._write(place, chunks)
        return str(place if self.folder else place / Path(self.source).name)

    def _write(self, place: Path, chunks: Iterator[np.ndarray]) -> None:
        for piece in self.pieces:
            target = place / piece.name
            target.parent.mkdir(parents=True, exist_ok=True)
            draft, left = beside(target), piece.size
            with draft.open("wb") as stream:
                while left:
                    chunk = next(chunks)
                    _write_sparse(stream, chunk)
                    left -= chunk.nbytes
                stream.truncate(piece.size)
            if sha256(draft) != piece.digest:
                draft.unlink()
                raise OSError(f"{target}: arrived corrupted")
            draft.replace(target)
        (place / ".whole").touch()


def _files(path: Path) -> Iterator[Path]:
    """A folder's files; a file with those that are named after it, as weights apart are."""
    if path.is_dir():
        yield from path.rglob("*")
        return
    for file in path.parent.glob(f"{_escaped(path.stem)}*"):
        rest = file.name.removeprefix(path.stem)
        if file == path or rest[:1] in (".", "-", "_"):
            yield file


def _escaped(text: str) -> str:
    return "".join(f"[{char}]" if char in "[]*?" else char for char in text)


def _write_sparse(stream: Any, chunk: np.ndarray) -> None:
    """Zeros are left out, as the sender's disk may have done."""
    if chunk.any():
        stream.write(chunk)
    else:
        stream.seek(chunk.nbytes, os.SEEK_CUR)


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
