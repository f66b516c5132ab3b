"""All runs below a folder: which there are, and how each one stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lpot.core.errors import LpotError
from lpot.core.files.history import NAME
from lpot.core.results.report import Report
from lpot.jobs.report.read import read_report, stamp
from lpot.jobs.report.write import DATA

DEEPEST = 4  # folders below the one given
MOST = 500  # runs


@dataclass(frozen=True)
class Run:
    """One workspace. `key` names it in addresses: no path is ever taken from one."""

    path: Path
    name: str  # its path below the folder
    found: Report | str  # or why there is none

    @property
    def key(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()[:12]


def is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (NAME, DATA))


def places(folder: Path, deepest: int = DEEPEST) -> Iterator[Path]:
    """Workspaces below a folder, in the order of their names; links are not followed."""
    try:
        below = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
    except OSError:
        return
    for path in below:
        if is_run(path):
            yield path
        elif deepest > 1:
            yield from places(path, deepest - 1)


class Runs:
    """The runs below a folder; each is read anew only when its files changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[Path, tuple[tuple[int, ...], Run]] = {}

    def all(self) -> list[Run]:
        found = []
        for _, path in zip(range(MOST), places(self.folder), strict=False):
            now = stamp(path)
            known = self._known.get(path)
            if known is None or known[0] != now:
                known = self._known[path] = (now, self._read(path))
            found.append(known[1])
        return found

    def stamp(self) -> str:
        paths = [path for _, path in zip(range(MOST), places(self.folder), strict=False)]
        told = repr([(str(path), stamp(path)) for path in paths])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def _read(self, path: Path) -> Run:
        name = str(path.relative_to(self.folder))
        try:
            return Run(path, name, read_report(path))
        except (LpotError, OSError) as error:
            return Run(path, name, str(error))
