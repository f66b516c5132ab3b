"""The calibration loader, whatever it is: bounded, with a fingerprint."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lpot.core.batch import Batch, Inputs, Reader, Runs, as_array
from lpot.core.errors import CalibrationError, DataError
from lpot.core.loader import LOOK_AHEAD_BYTES, LOOK_AHEAD_SAMPLES, Loader, copied

# Without sampling_size a loader that does not end is cut here.
ENDLESS_SAMPLES = 100
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Calibration:
    """Reads a user's loader as batches of inputs. `notes` gathers what the user should know.

    `fixed` is the one batch size a model takes, None when it takes any; `runs` tries inputs out on
    a model whose inputs can't be told from its signature alone.
    """

    def __init__(
        self,
        loader: Any,
        names: Sequence[str] | None,
        fixed: int | None = None,
        runs: Runs | None = None,
    ) -> None:
        self.fixed = fixed
        self._read = Reader(names, runs)
        self.notes: list[str] = []
        self._loader = loader if isinstance(loader, Loader) else Loader(loader)
        self.length = self._loader.length
        if self._loader.is_empty:
            raise CalibrationError(
                "the calibration loader is empty: it yielded no batch (an exhausted generator?)"
            )
        self.first = self._split(self._loader.peek())
        if self.first.size == 0:
            raise CalibrationError("the first calibration batch is empty: it has no samples")
        self.notes += [f"calibration: {note}" for note in self._read.notes]
        if self.first.ambiguous:
            self.notes.append(
                "calibration batches of two items fit both (inputs) and (inputs, labels): the "
                "second item was taken as labels; yield a dict by input name if it is an input"
            )
        # What the loader promises, else what its first batch shows (the last may be short).
        self.batch_size = self._loader.batch_size or self.first.size
        self._fingerprint = fingerprint(self.first, self.length, self._loader.content)

    def fingerprint(self) -> str:
        """Of the first batch, the loader's length and what can be seen of its content."""
        return self._fingerprint

    def batches(self, sizes: Sequence[int]) -> Iterator[Inputs]:
        """The inputs, up to the largest size; 0 stands for all there are."""
        rest: Iterator[Batch] = map(self._split, self._loader.open())
        limit: float = max(sizes)
        if 0 in sizes:
            rest, limit = self._until_end(rest)
        seen = 0
        dropped = 0
        for batch in rest:
            if batch.size < (self.fixed or 1):
                dropped += 1
                continue
            yield batch.inputs
            seen += batch.size
            if seen >= limit:
                return
        self.notes += [f"calibration: {note}" for note in self._loader.notes]
        if dropped:
            self.notes.append(
                f"{dropped} calibration batch(es) were skipped: they have fewer samples than the "
                f"{self.fixed or 1} that the model expects"
            )
        if limit != float("inf") and 0 not in sizes:
            self.notes.append(
                f"sampling_size is {limit:.0f}, but the loader has only {seen} samples: all are "
                "used"
            )

    def _until_end(self, batches: Iterator[Batch]) -> tuple[Iterator[Batch], float]:
        if self.length:  # some loaders with a length go round for ever
            return itertools.islice(batches, self.length), float("inf")
        held: list[Batch] = []
        seen = size = 0
        while seen < LOOK_AHEAD_SAMPLES and size < LOOK_AHEAD_BYTES:
            batch = next(batches, None)
            if batch is None:
                return iter(held), float("inf")
            held.append(owned(batch))
            seen += max(1, batch.size)
            size += batch.nbytes
        self.notes.append(
            f"the calibration loader has no length and did not end within {seen} samples: "
            f"{ENDLESS_SAMPLES} are used; set `calibration.sampling_size` to choose how many"
        )
        return iter(held), ENDLESS_SAMPLES

    def _split(self, raw: Any) -> Batch:
        try:
            return self._read(raw)
        except DataError as error:
            raise CalibrationError(f"calibration data: {error}") from error


def fingerprint(first: Batch, length: int | None, content: str | None = None) -> str:
    digest = hashlib.sha256(f"{length} {content}".encode())
    items = first.inputs.items() if isinstance(first.inputs, Mapping) else enumerate(first.inputs)
    for name, value in items:
        try:
            array = as_array(value)
        except ValueError:  # ragged lists: the backend will say what is wrong with them
            array = np.array(repr(value))
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        words = array.dtype.kind in "OUS"  # of objects, without where they lie in memory
        raw = _ADDRESS.sub("", str(array.tolist())).encode() if words else array.tobytes()
        digest.update(raw)
    return digest.hexdigest()[:32]


def owned(batch: Batch) -> Batch:
    """A batch that stays as it is: some loaders fill the same buffers again and again."""
    if isinstance(batch.inputs, Mapping):
        return Batch(copied(batch.inputs), batch.labels, batch.ambiguous)
    return Batch(tuple(map(copied, batch.inputs)), batch.labels, batch.ambiguous)
