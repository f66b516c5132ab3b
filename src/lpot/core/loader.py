"""A user's loader, opened anew for each use: whoever reads it sees all of it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from types import GeneratorType
from typing import Any

import numpy as np

from lpot.core.batch import size_in_bytes
from lpot.core.errors import CalibrationError, a_kind
from lpot.core.evaluation.identity import values_digest
from lpot.core.interrupt import Terminated

# A loader that keeps its own place is read ahead this far to bring it back to its beginning.
LOOK_AHEAD_SAMPLES = 1000
LOOK_AHEAD_BYTES = 1 << 28
# Iterators of the language itself: what they gave is gone, and nobody else reads them.
ONE_SHOT: tuple[type[Any], ...] = (
    GeneratorType,
    map,
    filter,
    zip,
    enumerate,
    type(iter([])),
    type(iter(())),
)


class Loader:
    """Batches as the loader gives them, from the beginning each time `open` is called.

    Loaders keep their place in several ways. One whose `__iter__` makes a new iterator is asked
    for another one; a function that makes loaders is called again. One that has `reset()`
    (MXNet's DataIter, many a class in tutorials) is rewound before and after each use. One that
    is its own iterator and has no `reset` is read to its end at once, within bounds: then it
    stands where the next reader expects it.
    """

    def __init__(self, given: Any) -> None:
        self._given = _made(given)
        self._maker = None if is_loader(given) or isinstance(given, type) else given
        self.length = length_of(self._given)
        self.notes: list[str] = []
        self._held: list[Any] = []
        self._rest: Iterator[Any] | None = None  # goes on behind what is held

    @property
    def batch_size(self) -> int | None:
        """What the loader says of itself."""
        given = getattr(self._given, "batch_size", None)
        return int(given) if isinstance(given, int | np.integer) and given > 0 else None

    @property
    def is_empty(self) -> bool:
        return not self._first

    @property
    def content(self) -> str | None:
        """Digest of what is in it, where that can be told without reading it as a loader."""
        listed = isinstance(self._given, list | tuple) or hasattr(self._given, "dataset")
        return values_digest(self._given) if listed else None

    def peek(self) -> Any:
        """The first batch, copied; None of an empty loader."""
        return self._first[0] if self._first else None

    @cached_property
    def _first(self) -> tuple[Any, ...]:
        source = self._fresh()
        first = tuple(copied(batch) for batch in islice(_onward(source, self.notes), 1))
        if source is self._given and not self._can_reset and self._maker is None:
            self._hold(first, source)
        else:
            _close(source)
            self._rewind()
        return first

    def open(self) -> Iterator[Any]:
        """All batches; once for a generator, whose batches are gone when they were read."""
        if self.is_empty:
            return
        if self._rest is not None or self._held:
            yield from self._held
            yield from _onward(self._rest, self.notes)
            return
        gave = False
        try:
            for batch in _onward(self._fresh(), self.notes):
                gave = True
                yield batch
        finally:
            self._rewind()
        if not gave:
            self.notes.append(
                "the loader gave nothing when it was read again: only its first batch is used; "
                "let __iter__ start from the beginning, or give it a reset()"
            )
            yield self.peek()

    @cached_property
    def _can_reset(self) -> bool:
        reset = getattr(self._given, "reset", None)
        return callable(reset) and takes_nothing(reset)

    def _fresh(self) -> Iterator[Any]:
        self._rewind()
        if not isinstance(self._given, Iterable) and self.length is not None:
            return (self._given[index] for index in range(self.length))
        return iter(self._given)

    def _rewind(self) -> None:
        if self._can_reset:
            self._given.reset()
        elif self._maker is not None:
            self._given = self._maker()

    def _hold(self, first: tuple[Any, ...], source: Iterator[Any]) -> None:
        self._held = list(first)
        if isinstance(source, ONE_SHOT):
            self._rest = source
            return
        seen = size = 0
        for batch in _onward(source, self.notes):
            self._held.append(copied(batch))
            samples, space = _measure(batch)
            seen, size = seen + samples, size + space
            if seen >= LOOK_AHEAD_SAMPLES or size >= LOOK_AHEAD_BYTES:
                self._rest = source
                return


def is_loader(given: Any) -> bool:
    """Can batches be taken from it as it is?"""
    return isinstance(given, Iterable) or hasattr(given, "__getitem__")


def _made(given: Any) -> Any:
    """The loader itself, of a class or a function that makes one."""
    if isinstance(given, str | bytes | Mapping) or given is None:
        raise CalibrationError(
            f"the calibration loader is {a_kind(given)}: give something to iterate over "
            "that yields batches (a list, a DataLoader, a generator)"
        )
    if isinstance(given, type):  # it has the methods, but no data
        return _made(given())
    if is_loader(given):
        return given
    if callable(given):
        return _made(given())
    raise CalibrationError(
        f"the calibration loader is {a_kind(given)}, which can't be iterated over: "
        "give something with __iter__ or __getitem__ (only decoders read files of text)"
    )


def length_of(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, LookupError):
        return None  # none, or one that it does not tell


def copied(value: Any) -> Any:
    """Values that stay as they are: some loaders fill the same buffers again and again."""
    if type(value) is dict:
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(copied, value))
    if isinstance(value, list):
        return list(map(copied, value))
    if hasattr(value, "provide_data"):  # a batch of MXNet's DataIter
        twin = copy.copy(value)
        twin.data, twin.label = copied(value.data), copied(value.label)
        return twin
    if hasattr(value, "asnumpy"):  # MXNet
        return value.copy()
    if hasattr(value, "detach") and hasattr(value, "dtype"):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    # Objects that hold tensors (graphs, encodings) stay what they are: models read their fields.
    holds = isinstance(value, Mapping) or hasattr(value, "detach") or hasattr(value, "to")
    return copy.deepcopy(value) if holds else value


def takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # written in C, and silent about its arguments
        return True
    return True


def _measure(batch: Any) -> tuple[int, int]:
    """(samples, bytes) of a batch, as far as its arrays tell."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    items = batch if isinstance(batch, list | tuple) else [batch]
    shapes = [tuple(item.shape) for item in items if getattr(item, "shape", None) is not None]
    space = sum(map(size_in_bytes, items))
    # An empty batch counts, too: endless ones come to an end.
    return max(1, *(int(shape[0]) for shape in shapes if shape), 1), space


class _Ending:
    """Swallows the exceptions by which loaders end in the middle, and says so.

    TensorFlow's end of data is an error of its own, and a generator in which another iterator has
    ended raises a RuntimeError.
    """

    def __init__(self, notes: list[str]) -> None:
        self.reached = False
        self._notes = notes

    def __enter__(self) -> _Ending:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> bool:
        by_itself = isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration)
        self.reached = by_itself or (kind is not None and kind.__name__ == "OutOfRangeError")
        if self.reached:
            name = "StopIteration inside of a generator" if by_itself else "OutOfRangeError"
            told = f"the loader ended by an error ({name}): the batches that it gave are used"
            if told not in self._notes:
                self._notes.append(told)
        return self.reached


def _onward(source: Iterator[Any] | None, notes: list[str]) -> Iterator[Any]:
    """The rest, without `iter`, at which some go back to their beginning."""
    while source is not None:
        try:
            with _Ending(notes) as ending:
                batch = next(source)
        except StopIteration:
            return
        except Terminated:  # ours: the program is to end
            raise
        except SystemExit as error:
            raise CalibrationError(
                f"the calibration loader called sys.exit({error.code!r}), which would have ended "
                "the whole program: raise an exception instead"
            ) from error
        if ending.reached:
            return
        yield batch


def _close(source: Iterator[Any]) -> None:
    if isinstance(source, GeneratorType):
        source.close()
