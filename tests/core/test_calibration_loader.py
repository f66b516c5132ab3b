"""Loaders of every habit: each use sees all batches once, and leaves none out for the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lpot.core.calibration import Calibration
from lpot.core.errors import CalibrationError
from lpot.core.loader import Loader

COUNT = 10


def batch(index: int) -> np.ndarray:
    return np.full((1, 2), float(index), np.float32)


class Fresh:
    def __iter__(self) -> Iterator[np.ndarray]:
        return map(batch, range(COUNT))


class OwnIterator:
    """Begins again when it has said that it is over, as the tutorials' classes do."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> OwnIterator:
        return self

    def __next__(self) -> np.ndarray:
        if self.at == COUNT:
            self.at = 0
            raise StopIteration
        self.at += 1
        return batch(self.at - 1)


class ResetsInIter(OwnIterator):
    def __iter__(self) -> OwnIterator:
        self.at = 0
        return self


class KeepsItsPlace:
    """The place is on `self`, and only `reset` or the end bring it back."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.source = map(batch, range(COUNT))

    def __iter__(self) -> Iterator[np.ndarray]:
        yield from self.source
        self.reset()


class ResetByHand(OwnIterator):
    """MXNet's way: over is over until somebody calls reset()."""

    def reset(self) -> None:
        self.at = 0

    def __next__(self) -> np.ndarray:
        if self.at == COUNT:
            raise StopIteration
        return super().__next__()


class ResetsSomethingElse(Fresh):
    def reset(self, counter: str) -> None:
        raise AssertionError


class OneBuffer:
    def __iter__(self) -> Iterator[np.ndarray]:
        buffer = np.zeros((1, 2), np.float32)
        for index in range(COUNT):
            buffer[:] = index
            yield buffer


class Indexed:
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> np.ndarray:
        return batch(index)


KINDS: list[Callable[[], Any]] = [
    Fresh,
    OwnIterator,
    ResetsInIter,
    KeepsItsPlace,
    ResetByHand,
    ResetsSomethingElse,
    OneBuffer,
    Indexed,
    lambda: [batch(index) for index in range(COUNT)],
    lambda: lambda: map(batch, range(COUNT)),
]


def seen(batches: Any) -> list[float]:
    arrays = (item[0] if isinstance(item, tuple) else item for item in batches)
    return [float(np.asarray(array)[0, 0]) for array in arrays]


@pytest.mark.parametrize("make", KINDS)
def test_all_is_seen_once_with_another_reader_in_between(make: Callable[[], Any]) -> None:
    given = make()
    calibration = Calibration(given, ["x"])
    if not callable(given) and not isinstance(given, Indexed):  # the evaluation reads it, too
        assert seen(given) == list(range(COUNT))
        if isinstance(given, ResetByHand):
            given.reset()
    assert seen(calibration.batches([0])) == list(range(COUNT))
    assert seen(calibration.batches([4])) == list(range(4))
    assert float(np.asarray(calibration.first.inputs[0])[0, 0]) == 0.0
    assert not calibration.notes


def test_a_generator_is_read_once_and_loses_nothing() -> None:
    calibration = Calibration(map(batch, range(COUNT)), ["x"])
    assert seen(calibration.batches([0])) == list(range(COUNT))


def test_an_iterator_that_does_not_end_is_read_within_bounds() -> None:
    class Endless(OwnIterator):
        def __next__(self) -> np.ndarray:
            self.at += 1
            return batch(self.at - 1)

    loader = Endless()
    calibration = Calibration(loader, ["x"])
    assert loader.at <= 1002
    assert seen(calibration.batches([7])) == list(range(7))


def test_a_loader_that_gives_nothing_the_second_time_is_told() -> None:
    class Spent:
        def __init__(self) -> None:
            self.source = iter([batch(0)])

        def __iter__(self) -> Iterator[np.ndarray]:
            yield from self.source

    calibration = Calibration(Spent(), ["x"])
    assert seen(calibration.batches([0])) == [0.0]
    assert any("read again" in note for note in calibration.notes)


@pytest.mark.parametrize("given", [None, "data", {"x": 1}, 7])
def test_what_is_no_loader_is_refused(given: Any) -> None:
    with pytest.raises(CalibrationError, match=r"loader is (an? \w+|None)[:,].* give"):
        Loader(given)


class OutOfRangeError(Exception):
    """As TensorFlow's: the end of its data."""


class EndsByAnError:
    """As the loaders of the detection tutorial: fewer images than were asked for."""

    def __iter__(self) -> Iterator[Any]:
        yield np.zeros((1, 2), np.float32)
        raise OutOfRangeError("End of sequence")


def ends_inside() -> Iterator[Any]:
    yield np.zeros((1, 2), np.float32)
    next(iter(()))


@pytest.mark.parametrize("given", [EndsByAnError(), ends_inside])
def test_a_loader_that_ends_by_an_error_has_ended(given: Any) -> None:
    loader = Loader(given)
    assert len(list(loader.open())) == len(list(loader.open())) == 1
    assert len(loader.notes) == 1 and "the batches that it gave are used" in loader.notes[0]


def test_other_errors_of_a_loader_are_its_own() -> None:
    def wrong() -> Iterator[Any]:
        yield np.zeros((1, 2), np.float32)
        raise KeyError("label")

    with pytest.raises(KeyError, match="label"):
        list(Loader(wrong).open())
