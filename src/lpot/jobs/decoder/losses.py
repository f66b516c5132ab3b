"""The loss in each window of a text, FP32's on disk as it is found."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

import numpy as np

Loss = tuple[float, float]  # summed over a window's tokens, and how many these are


class KnownLosses:
    """Reading a text with FP32 takes longest of all: neither a kill nor another goal repeats it.

    Without a file it is as long as the program.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._known: dict[int, Loss] = {} if path is None else _read(path)

    def get(self, window: int) -> Loss | None:
        return self._known.get(window)

    def put(self, window: int, loss: Loss) -> None:
        self._known[window] = loss
        if self.path is None:
            return
        with contextlib.suppress(OSError):  # it is only slower without
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps([window, *loss]) + "\n")


def digest(*arrays: np.ndarray) -> str:
    """What tells one text from another."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(repr(array.shape).encode())
        found.update(np.ascontiguousarray(array, np.int64).tobytes())
    return found.hexdigest()[:16]


def _read(path: Path) -> dict[int, Loss]:
    """Lines that were cut off are passed over."""
    found: dict[int, Loss] = {}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in path.read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                window, total, tokens = json.loads(line)
                if np.isfinite(total) and tokens > 0:
                    found[int(window)] = float(total), float(tokens)
    return found
