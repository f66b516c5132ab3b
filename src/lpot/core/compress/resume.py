"""A training as it stands after an epoch, in one file: one that was killed goes on from there."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lpot.core.errors import HistoryError
from lpot.core.files.store import read_arrays, write_arrays

FORMAT = 1
EVERY = 10.0  # seconds: what short epochs may lose besides the one that was interrupted
REMEDY = "the training starts from its first epoch"

Arrays = Mapping[str, np.ndarray]
_HELD: ContextVar[list[TrainingFile] | None] = ContextVar("lpot_trainings", default=None)


@dataclass(frozen=True, eq=False)
class Kept:
    """What one part of a training needs to go on: arrays, and values as JSON has them."""

    arrays: Arrays
    facts: Mapping[str, Any]


class Resumable(Protocol):
    """A part of a training: the model and its optimizer, or the pruners."""

    def kept(self) -> Kept:
        """Raises TypeError where something in it is neither array nor JSON."""
        ...

    def take(self, kept: Kept) -> None:
        """Go on from there; raises KeyError or ValueError for what does not fit."""
        ...


class TrainingFile:
    """Written after epochs, and read once when a training of the same identity begins.

    `others` are its parts besides the loop's own; `data` learn which epoch is the next.
    """

    def __init__(
        self,
        path: Path,
        identity: str,
        tell: Callable[[str], None],
        others: Sequence[Resumable] = (),
        data: Any = None,
    ) -> None:
        self.path, self._identity, self._tell = path, identity, tell
        self._others, self._data = others, data
        self._begun = self._last = time.monotonic()
        self._fails = False

    def begin(self, first: int, training: Resumable) -> int:
        """The epoch to begin with; everything is as it was then."""
        self._begun = self._last = time.monotonic()
        if not self.path.is_file():
            return first
        fallback = [part.kept() for part in (*self._others, training)]
        try:
            epoch, parts = self._read()
            if epoch is None:
                return first
            self._take(parts, training)
        except (HistoryError, KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
            self._take(fallback, training)
            self._tell(f"{self.path} can't be used ({error}): {REMEDY}")
            return first
        if self._data is not None:
            self._data.set_epoch(epoch + 1 - first)
        self._tell(f"the training goes on behind epoch {epoch}, which was kept in {self.path}")
        return epoch + 1

    def ended(self, epoch: int, training: Resumable, last: bool = False) -> None:
        """After an epoch. What can't be written is told, and the training goes on."""
        since = self._begun if last and _HELD.get() is not None else self._last
        if self._fails or time.monotonic() - since < EVERY:
            return
        try:
            self._write(epoch, training)
        except (OSError, TypeError, ValueError) as error:
            self._fails = True
            self._tell(
                f"warning: {self.path}: the training can't be kept ({error}): a run that is "
                "killed starts again from the first epoch"
            )
        self._last = time.monotonic()

    def finished(self) -> None:
        """What came of it is in the user's hands, or in those of the next step of a chain."""
        held = _HELD.get()
        if held is None:
            self.remove()
        else:
            held.append(self)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _read(self) -> tuple[int | None, list[Kept]]:
        """None for the epoch: it is another training's."""
        arrays = read_arrays(self.path, REMEDY)
        index = json.loads(arrays["index"].tobytes())
        if index["format"] != FORMAT or index["identity"] != self._identity:
            self._tell(f"{self.path} is of another model, data or configuration: {REMEDY}")
            return None, []
        parts = [
            Kept({name: arrays[f"{at}/{number}"] for number, name in enumerate(one["names"])}, one)
            for at, one in enumerate(index["parts"])
        ]
        return int(index["epoch"]), [Kept(part.arrays, part.facts["facts"]) for part in parts]

    def _take(self, parts: Sequence[Kept], training: Resumable) -> None:
        for part, kept in zip((*self._others, training), parts, strict=True):
            part.take(kept)

    def _write(self, epoch: int, training: Resumable) -> None:
        kept = [part.kept() for part in (*self._others, training)]
        index = {
            "format": FORMAT,
            "identity": self._identity,
            "epoch": epoch,
            "parts": [{"names": list(one.arrays), "facts": dict(one.facts)} for one in kept],
        }
        arrays = {
            f"{at}/{number}": value
            for at, one in enumerate(kept)
            for number, value in enumerate(one.arrays.values())
        }
        arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(self.path, arrays)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Trainings that end in here are kept until all of it is over: a chain that is killed later
    does not train them again."""
    files: list[TrainingFile] = []
    token = _HELD.set(files)
    try:
        yield
    finally:
        _HELD.reset(token)
    for file in files:
        file.remove()
