"""What is known of channels while a graph is walked: where they lie, and what is tied to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lpot.core.compress.groups import Place
from lpot.core.ptq.streams import Ties


@dataclass(frozen=True, eq=False)
class Lane:
    """The channels of a value, on its last axis: `inner` entries for each (of a depthwise
    convolution with a multiplier), and all of them `outer` times (a flattened picture).

    It is known by itself: two values that are alike have two lanes.
    """

    width: int
    inner: int = 1
    outer: int = 1

    @property
    def size(self) -> int:
        return self.width * self.inner * self.outer

    def is_like(self, other: Lane) -> bool:
        return (self.width, self.inner, self.outer) == (other.width, other.inner, other.outer)


class Flow:
    """The ties between lanes, and the places of weights on which they lie."""

    def __init__(self) -> None:
        self.ties = Ties()
        self.places: dict[str, Place] = {}
        self.widths: dict[str, int] = {}

    def lane(self, width: int, inner: int = 1, outer: int = 1) -> Lane:
        """Channels that nothing is known of so far."""
        made = Lane(width, inner, outer)
        self.ties.know(made, width)
        return made

    def part(self, lane: Lane, whole: Lane, start: int = 0) -> Lane:
        """These channels are channels of the other lane, from there on."""
        self.ties.tie(lane, whole, start)
        return whole

    def fix(self, lanes: Iterable[Lane | None]) -> None:
        self.ties.fix(lane for lane in lanes if lane is not None)

    def make(self, lane: Lane, tensor: str, axis: int, *work: Sequence[Any]) -> None:
        self.ties.make(self._place(lane, tensor, axis, work), lane, lane.width)

    def read(self, lane: Lane, tensor: str, axis: int, *work: Sequence[Any]) -> None:
        self.ties.read(self._place(lane, tensor, axis, work), lane)

    def add(self, lane: Lane, tensor: str, axis: int, *work: Sequence[Any]) -> None:
        """Something with an entry for each channel: a bias, a norm, a filter of its own."""
        self.ties.add(self._place(lane, tensor, axis, work), lane)

    def _place(self, lane: Lane, tensor: str, axis: int, work: Sequence[Sequence[Any]]) -> str:
        op = f"{tensor}@{axis}"
        sizes = tuple(tuple(int(size or 0) for size in shape) for shape in work)
        self.places[op] = Place(tensor, axis, lane.inner, sizes, lane.outer)
        self.widths[op] = lane.width
        return op
