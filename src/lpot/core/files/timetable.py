"""Measured times of single ops, kept on disk by CPU and versions."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lpot.core.cpu import this_cpu
from lpot.core.files.card import write_text
from lpot.core.files.untrusted import read_regular

# -- Files that only save work: used if they can be read, kept if they can be written.


logger = logging.getLogger(__name__)

Found = TypeVar("Found")
# What reading a damaged or foreign JSON value may raise.
UNUSABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


def recall(place: Path, read: Callable[[Any], Found]) -> Found | None:
    """What `read` makes of the file; None if there is none yet, or one that can't be used."""
    try:
        return read(json.loads(read_regular(place)))
    except (OSError, *UNUSABLE):
        return None


def keep(place: Path, value: Any, what: str) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, json.dumps(value) + "\n")
    except OSError as error:
        logger.info("%s: %s not kept (%s)", place, what, error.strerror)


FOLDER = "LPOT_CACHE"  # environment: where to keep it, in place of the user's cache folder


class Timetable:
    """Seconds by what was timed. A table that can't be read or written is only a slower one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = recall(path, _seconds) or {}

    @classmethod
    def of_this_machine(cls, versions: Mapping[str, str]) -> Timetable:
        """The table for this CPU, the cores and threads that we may use, and these versions."""
        cpu = this_cpu()
        threads = os.environ.get("LPOT_THREADS", "")
        facts = [cpu.name, cpu.features, cpu.cores, threads, sorted(versions.items())]
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        return cls(cache_folder() / f"times-{key}.json")

    def seconds(self, name: str, measure: Callable[[], float]) -> float:
        """What is known under the name, or is measured now and kept."""
        if name not in self._known:
            self._known[name] = measure()
        return self._known[name]

    def lower(self, name: str, seconds: float) -> None:
        """Measured again: the least is nearest to what an undisturbed machine takes."""
        self._known[name] = min(seconds, self._known.get(name, seconds))

    def save(self) -> None:
        keep(self.path, dict(sorted(self._known.items())), "times are")


def cache_folder() -> Path:
    given = os.environ.get(FOLDER)
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "lpot"


def _seconds(raw: Any) -> dict[str, float]:
    return {str(name): float(value) for name, value in raw.items()}
