"""The loader: a dataset in batches, in order or shuffled by seed, read by threads where asked."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError, did_you_mean
from lpot.data.collate import CollateError, collate, gather
from lpot.data.datasets.base import Dataset
from lpot.data.draw import DEFAULT_SEED, drawing
from lpot.data.transforms.base import Transform, steps_of

logger = logging.getLogger(__name__)

LAST_BATCH = ("rollover", "discard")


class DataLoader:
    """A dataset in batches; it can be iterated any number of times.

    Args:
        dataset: anything with `__getitem__` (and `__len__`), or with `__iter__`.
        batch_size: samples in a batch.
        collate_fn: makes a batch from a list of samples; by default arrays are stacked.
        last_batch: 'rollover' keeps a short last batch, 'discard' drops it.
        sampler: the sample numbers to visit, in order.
        batch_sampler: lists of sample numbers, one list per batch; replaces the others.
        num_workers: threads that read ahead; 0 reads in the caller's thread.
        pin_memory: accepted for compatibility; no effect.
        shuffle: visit the samples in an order drawn from `seed`, the same in each pass.
        distributed: accepted for compatibility; no effect.
        seed: seed of the shuffle and of random transforms.

    >>> [labels.tolist() for _, labels in DataLoader([(0.5, 1), (0.5, 2), (0.5, 3)], batch_size=2)]
    [[1, 2], [3]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        last_batch: str = "rollover",
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        shuffle: bool = False,
        distributed: bool = False,
        seed: int = DEFAULT_SEED,
    ) -> None:
        self.dataset = dataset
        self.batch_size = _positive(batch_size, "batch_size")
        self.collate_fn = collate_fn or getattr(dataset, "collate_fn", None) or collate
        self.last_batch = last_batch
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = _positive(num_workers, "num_workers", least=0)
        self.shuffle = bool(shuffle)
        self.seed = int(seed)
        self.epoch = 0
        # Without a length, a dataset that can be iterated is taken as a row of samples, even if a
        # base class gives it a __getitem__ (as torch does).
        self._numbered = hasattr(dataset, "__getitem__") and (
            isinstance(dataset, Sized) or not isinstance(dataset, Iterable)
        )
        self._spent = False
        steps = steps_of(dataset.transform) if isinstance(dataset, Dataset) else ()
        last = steps[-1] if steps else None
        self._fresh = isinstance(last, Transform) and last.fresh
        self._check()
        if distributed:
            logger.info("distributed loading is not needed: each process loads the whole dataset")

    def __iter__(self) -> Iterator[Any]:
        batches = self._numbered_batches() if self._numbered else self._streamed_batches()
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            short = f" of {self.batch_size} samples" if self.last_batch == "discard" else ""
            raise DataError(
                f"the dataset {_name(self.dataset)} yielded no batch{short}: it is empty"
            )

    def __len__(self) -> int:
        """Number of batches, where the dataset or sampler knows its length."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        count = len(self.sampler if self.sampler is not None else self.dataset)  # type: ignore[arg-type]
        short = self.last_batch == "rollover" and count % self.batch_size > 0
        return count // self.batch_size + short

    def set_epoch(self, epoch: int) -> None:
        """Draw another order and other random transforms, for training."""
        self.epoch = int(epoch)

    def groups(self) -> list[list[int]] | None:
        """The sample numbers of each batch of a pass; None where they are known only on the way."""
        sources = (self.dataset, self.sampler, self.batch_sampler)
        ends = all(isinstance(one, Sized) for one in sources if one is not None)
        return list(self._groups()) if self._numbered and ends else None

    def with_groups(self, groups: Sequence[Sequence[int]]) -> DataLoader:
        """The same dataset in these batches, each a list of sample numbers."""
        loader = DataLoader(
            self.dataset,
            self.batch_size,
            self.collate_fn,
            batch_sampler=groups,
            num_workers=self.num_workers,
            seed=self.seed,
        )
        loader.set_epoch(self.epoch)
        return loader

    @property
    def batches_are_plain(self) -> bool:
        """A sample comes out the same whichever others are in its batch."""
        return self.collate_fn is collate

    def _check(self) -> None:
        if self.last_batch not in LAST_BATCH:
            near = did_you_mean(str(self.last_batch), LAST_BATCH)
            raise ConfigError(
                f"last_batch should be 'rollover' or 'discard', not {self.last_batch!r}{near}"
            )
        if not self._numbered and not isinstance(self.dataset, Iterable):
            raise DataError(
                f"a dataset needs __getitem__ or __iter__; {_name(self.dataset)} has neither"
            )
        orders = [self.sampler is not None, self.batch_sampler is not None, self.shuffle]
        if sum(orders) > 1:
            raise ConfigError("give only one of sampler, batch_sampler and shuffle")
        if any(orders) and not (self._numbered and isinstance(self.dataset, Sized)):
            raise ConfigError(
                f"sampler, batch_sampler and shuffle need a dataset with __getitem__ and __len__; "
                f"{_name(self.dataset)} only gives its samples in sequence"
            )
        if isinstance(self.dataset, Sized) and len(self.dataset) == 0:
            raise DataError(f"the dataset {_name(self.dataset)} is empty")

    def _order(self) -> Iterable[int]:
        if self.sampler is not None:
            return self.sampler
        if not isinstance(self.dataset, Sized):
            return itertools.count()
        count = len(self.dataset)
        if not self.shuffle:
            return range(count)
        order: list[int] = (
            np.random.default_rng([self.seed, self.epoch]).permutation(count).tolist()
        )
        return order

    def _groups(self) -> Iterator[list[int]]:
        """The sample numbers of each batch."""
        if self.batch_sampler is not None:
            for group in self.batch_sampler:
                yield list(group)
            return
        numbers = iter(self._order())
        while group := list(itertools.islice(numbers, self.batch_size)):
            if len(group) == self.batch_size or self.last_batch == "rollover":
                yield group

    def _numbered_batches(self) -> Iterator[Any]:
        if self.num_workers and isinstance(self.dataset, Sized):
            yield from self._threaded_batches()
            return
        for group in self._groups():
            batch = self._batch(group)
            if batch is _END:
                return
            yield batch

    def _threaded_batches(self) -> Iterator[Any]:
        """Whole batches by threads, handed on in order, two ahead for each thread."""
        groups = self._groups()
        waiting: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(self.num_workers, thread_name_prefix="lpot-data") as pool:
            try:
                for group in groups:
                    waiting.append(pool.submit(self._batch, group))
                    if len(waiting) > 2 * self.num_workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                # The caller may stop early: what has not begun need not be read.
                for job in waiting:
                    job.cancel()

    def _batch(self, group: Sequence[int]) -> Any:
        """The batch of these samples; _END where a dataset of unknown length has ended."""
        return self._collated((self._sample(number) for number in group), group)

    def _sample(self, number: int) -> Any:
        with drawing(self.seed, self.epoch, int(number)):
            try:
                return self.dataset[number]
            except IndexError as error:
                if not isinstance(self.dataset, Sized):
                    return _END
                if 0 <= number < len(self.dataset):
                    raise
                raise DataError(
                    f"the sampler asks for sample {number}, but {_name(self.dataset)} has "
                    f"{len(self.dataset)}"
                ) from error

    def _streamed_batches(self) -> Iterator[Any]:
        if self._spent:
            raise DataError(
                f"the dataset is a {_name(self.dataset)}, which can be iterated only once, and "
                "already was. Give a list, or a class with __iter__"
            )
        self._spent = isinstance(self.dataset, Iterator)
        source = iter(self.dataset)
        for start in itertools.count(step=self.batch_size):
            group = range(start, start + self.batch_size)
            batch = self._collated((self._next(source, number) for number in group), group)
            if batch is _END:
                return
            yield batch

    def _next(self, source: Iterator[Any], number: int) -> Any:
        with drawing(self.seed, self.epoch, number):
            return next(source, _END)

    def _collated(self, samples: Iterator[Any], group: Sequence[int]) -> Any:
        """The samples up to the end as a batch; _END without any, or if a short one is dropped."""
        count = 0

        def counted() -> Iterator[Any]:
            nonlocal count
            for sample in itertools.takewhile(lambda item: item is not _END, samples):
                count += 1
                yield sample

        try:
            if self.collate_fn is collate:
                batch = gather(counted(), len(group), self._fresh)
            else:
                found = list(counted())
                batch = self.collate_fn(found) if found else _END
        except CollateError as error:
            shown = f"{group[0]} to {group[-1]}" if len(group) > 1 else f"{group[0]}"
            raise DataError(f"{_name(self.dataset)}, samples {shown}: {error}") from error
        dropped = self.batch_sampler is None and self.last_batch == "discard"
        return _END if count == 0 or (dropped and count < len(group)) else batch


_END = object()


def _name(dataset: Any) -> str:
    return type(dataset).__name__


def _positive(value: Any, name: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ConfigError(f"{name} should be a whole number of {least} or more, not {value!r}")
    return int(value)
