"""In which order an evaluation visits its samples: as given at first, then the hardest first.

A model that loses the bar is then found out soonest. Order never changes a score: only metrics that
are means over samples are visited in another order, and batches are taken apart only where the
samples of a batch do not meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from operator import length_hint
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lpot.core.batch import as_array
from lpot.core.model import Model


@runtime_checkable
class Regrouped(Protocol):
    """A loader that can visit its samples in any order, such as `lpot.data.DataLoader`."""

    def groups(self) -> list[list[int]] | None:
        """Sample numbers of each batch; None where they can't be told beforehand."""

    def with_groups(self, groups: Sequence[Sequence[int]]) -> Iterable[Any]: ...

    @property
    def batches_are_plain(self) -> bool:
        """A sample comes out the same whichever others are in its batch."""


class Course:
    """The batches of a loader, of which `iteration` are visited (-1: all)."""

    def __init__(self, loader: Iterable[Any], iteration: int = -1) -> None:
        self.loader = loader
        self.limit = iteration if iteration > 0 else None
        self._groups = self._numbers()
        self._by_sample: list[int] | None = None  # sample numbers, the hardest first
        self._by_batch: list[int] | None = None  # places of batches, the hardest first

    @property
    def length(self) -> int | None:
        steps = [n for n in (self.limit, length_hint(self.loader, 0)) if n]
        return min(steps) if steps else None

    @property
    def is_known(self) -> bool:
        """There is nothing more to learn about the order."""
        return self._by_batch is not None or not self._can_be_led()

    def batches(self, model: Model | None = None) -> Iterator[Any]:
        """The batches, the hardest first once that is known."""
        if self._by_batch is None:
            if self._groups is not None and isinstance(self.loader, Regrouped):
                return iter(self.loader.with_groups(self._groups))
            return islice(self.loader, self.limit)
        if self._groups is None:
            assert isinstance(self.loader, list | tuple)
            return (self.loader[place] for place in self._by_batch)
        assert isinstance(self.loader, Regrouped)
        return iter(self.loader.with_groups(self._led(model)))

    def keys(self, model: Model | None = None) -> Iterator[list[int] | int]:
        """For each batch that `batches` gives: its samples' numbers, or else its own place."""
        if self._groups is not None:
            yield from self._groups if self._by_batch is None else self._led(model)
        elif self._by_batch is not None:
            yield from self._by_batch
        else:
            yield from count()

    def learn(self, hardness: Sequence[np.ndarray]) -> None:
        """Take what `hardness` told of each batch, in the order given."""
        gaps, losses = np.concatenate(hardness, axis=1)
        order = np.lexsort((gaps, -losses))
        rank = np.empty(len(order))
        rank[order] = np.arange(len(order))
        ends = np.cumsum([one.shape[1] for one in hardness])[:-1]
        means = [float(part.mean()) for part in np.split(rank, ends)]
        self._by_batch = sorted(range(len(means)), key=means.__getitem__)
        if self._groups is not None and self._fits(hardness):
            numbers = list(chain.from_iterable(self._groups))
            self._by_sample = [numbers[at] for at in order]

    @property
    def memory(self) -> dict[str, list[int]] | None:
        """What was learned, for history: numbers only. None before that."""
        if self._by_batch is None:
            return None
        found = {"batches": self._by_batch}
        return found if self._by_sample is None else {**found, "samples": self._by_sample}

    def remember(self, memory: Mapping[str, list[int]]) -> None:
        """Take up what an earlier run learned; nothing, if the loader is no longer that one."""
        batches, samples = memory.get("batches"), memory.get("samples")
        groups = self._groups
        if groups is None:
            known = self.loader[: self.limit] if isinstance(self.loader, list | tuple) else ()
            if batches and sorted(batches) == list(range(len(known))):
                self._by_batch = batches
        elif batches and sorted(batches) == list(range(len(groups))):
            self._by_batch = batches
            if samples and sorted(samples) == sorted(chain.from_iterable(groups)):
                self._by_sample = samples

    def _led(self, model: Model | None) -> list[list[int]]:
        assert self._groups is not None and self._by_batch is not None
        if self._by_sample is None or _mixes(model):
            return [self._groups[place] for place in self._by_batch]
        numbers = iter(self._by_sample)
        return [list(islice(numbers, len(group))) for group in self._groups]

    def _fits(self, hardness: Sequence[np.ndarray]) -> bool:
        assert isinstance(self.loader, Regrouped) and self._groups is not None
        same = [one.shape[1] for one in hardness] == [len(group) for group in self._groups]
        return same and self.loader.batches_are_plain

    def _numbers(self) -> list[list[int]] | None:
        groups = self.loader.groups() if isinstance(self.loader, Regrouped) else None
        return None if groups is None else groups[: self.limit]

    def _can_be_led(self) -> bool:
        return self._groups is not None or isinstance(self.loader, list | tuple)


def _mixes(model: Model | None) -> bool:
    """Do samples of a batch meet? Ranges found while running are those of the whole batch."""
    recipe = None if model is None else model.recipe
    return recipe is not None and any(one.mode == "dynamic" for one in recipe.ops.values())


def hardness(preds: Any, losses: np.ndarray | None, size: int) -> np.ndarray:
    """How hard each sample of a batch is, as two rows: how narrowly it was decided, what it lost.

    Those that lost most come first, and among equals the narrow ones: both of FP32, whose wrong
    answers a worse model seldom gets right.
    """
    rows = np.zeros((2, size))
    for row, found in enumerate((margins(preds), losses)):
        if found is not None and len(found) == size:
            rows[row] = found
    return rows


def margins(preds: Any) -> np.ndarray | None:
    """Gap between the two highest scores of each sample; None where there are no such scores."""
    if isinstance(preds, list | tuple):
        return None
    scores = as_array(preds)
    if scores.ndim != 2 or scores.shape[1] < 2 or scores.dtype.kind != "f":
        return None
    top = np.partition(scores, -2, axis=1)[:, -2:]
    gaps: np.ndarray = np.nan_to_num((top[:, 1] - top[:, 0]).astype(np.float64))
    return gaps
