"""Channels that belong together: tensors are tied to streams, and some of them are fixed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Stream:
    """So many channels. Ops come with the channel at which each begins.

    `biases` are ops that add a constant of their own to the channels.
    """

    size: int
    makers: tuple[tuple[str, int], ...]
    readers: tuple[tuple[str, int], ...]
    biases: tuple[tuple[str, int], ...] = ()


class Ties:
    """Collects who makes and reads which tensor, and which tensors are parts of which.

    >>> ties = Ties()
    >>> ties.make("a", "x", 4)
    >>> ties.make("b", "y", 2)
    >>> ties.know("both", 6), ties.tie("x", "both", 0), ties.tie("y", "both", 4)
    (None, None, None)
    >>> ties.read("c", "both")
    >>> ties.streams()
    [Stream(size=6, makers=(('a', 0), ('b', 4)), readers=(('c', 0),), biases=())]
    """

    def __init__(self, fixed: Iterable[Hashable] = ()) -> None:
        self._widths: dict[Hashable, int] = {}
        self._fixed: set[Hashable] = set(fixed)
        self._makers: list[tuple[str, Hashable]] = []
        self._readers: list[tuple[str, Hashable]] = []
        self._biases: list[tuple[str, Hashable]] = []
        self._parent: dict[Hashable, tuple[Hashable, int]] = {}  # the one it is part of, and where

    def know(self, tensor: Hashable, width: int) -> None:
        self._widths[tensor] = width

    def make(self, op: str, tensor: Hashable, width: int) -> None:
        self.know(tensor, width)
        self._makers.append((op, tensor))

    def read(self, op: str, tensor: Hashable) -> None:
        self._readers.append((op, tensor))

    def add(self, op: str, tensor: Hashable) -> None:
        self._biases.append((op, tensor))

    def fix(self, tensors: Iterable[Hashable]) -> None:
        """Something else touches these: they must stay as they are."""
        self._fixed.update(tensors)

    def tie(self, part: Hashable, whole: Hashable, start: int) -> None:
        (first, here), (second, there) = self._place(part), self._place(whole)
        if first != second:
            self._parent[first] = (second, there + start - here)
        elif here != there + start:  # one tensor at two places
            self._fixed.add(part)

    def _place(self, tensor: Hashable) -> tuple[Hashable, int]:
        """The tensor that stands for the stream, and where this one begins in it."""
        start = 0
        while tensor in self._parent:
            tensor, step = self._parent[tensor]
            start += step
        return tensor, start

    def streams(self) -> list[Stream]:
        """Those that may be scaled and have somebody at both ends."""
        fixed = {self._place(tensor)[0] for tensor in self._fixed}
        spans: dict[Hashable, tuple[int, int]] = {}
        for tensor, width in self._widths.items():
            root, start = self._place(tensor)
            low, high = spans.get(root, (start, start))
            spans[root] = min(low, start), max(high, start + width)
        found = [self._stream(root, *span) for root, span in spans.items() if root not in fixed]
        return [stream for stream in found if stream.makers and stream.readers]

    def _stream(self, root: Hashable, low: int, high: int) -> Stream:
        def placed(pairs: list[tuple[str, Hashable]]) -> tuple[tuple[str, int], ...]:
            where = ((op, *self._place(tensor)) for op, tensor in pairs)
            return tuple((op, start - low) for op, of, start in where if of == root)

        return Stream(high - low, *map(placed, (self._makers, self._readers, self._biases)))
