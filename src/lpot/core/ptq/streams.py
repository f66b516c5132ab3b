"""Channels that belong together: tensors are tied to streams, and some of them are fixed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["maker", "reader", "bias"]


@dataclass(frozen=True)
class Channels:
    """The axes of a tensor that its channels lie on, out of `rank`; `width` of them in all.

    Spread over several axes (a projection split into heads) they count row by row. Flattened with
    the places of a picture, each channel has `inner` entries in a row on its axis, and all of them
    come `outer` times.
    """

    axes: tuple[int, ...]
    rank: int
    width: int
    inner: int = 1
    outer: int = 1

    @classmethod
    def last(cls, width: int, rank: int) -> Channels:
        """On the last axis.

        >>> Channels.last(8, 4).axes
        (3,)
        """
        return cls((rank - 1,), rank, width)

    @property
    def is_plain(self) -> bool:
        """Each channel is one entry of its axis."""
        return self.inner == self.outer == 1


@dataclass(frozen=True)
class Stream:
    """So many channels. Ops come with the channel at which each begins.

    `biases` are ops (or constants) that add something of their own to the channels.
    """

    size: int
    makers: tuple[tuple[str, int], ...]
    readers: tuple[tuple[str, int], ...]
    biases: tuple[tuple[str, int], ...] = ()


@dataclass
class _Members:
    """What is gathered of one stream."""

    low: int
    high: int
    ops: dict[Role, list[tuple[str, int]]] = field(
        default_factory=lambda: {"maker": [], "reader": [], "bias": []}
    )

    def stream(self) -> Stream:
        placed = (tuple((op, start - self.low) for op, start in ops) for ops in self.ops.values())
        return Stream(self.high - self.low, *placed)


class Ties:
    """Collects who makes and reads which tensor, and which tensors are parts of which.

    A union-find (Tarjan, "Efficiency of a Good But Not Linear Set Union Algorithm", 1975) whose
    links carry offsets: nearly linear in the number of ops.

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
        self._fixed: set[Hashable] = set(fixed)  # of which those that stand for a stream count
        self._ops: list[tuple[Role, str, Hashable]] = []
        self._parent: dict[Hashable, tuple[Hashable, int]] = {}  # the one it is part of, and where

    def know(self, tensor: Hashable, width: int) -> None:
        self._widths[tensor] = width

    def make(self, op: str, tensor: Hashable, width: int) -> None:
        self.know(tensor, width)
        self._ops.append(("maker", op, tensor))

    def read(self, op: str, tensor: Hashable) -> None:
        self._ops.append(("reader", op, tensor))

    def add(self, op: str, tensor: Hashable) -> None:
        self._ops.append(("bias", op, tensor))

    def fix(self, tensors: Iterable[Hashable]) -> None:
        """Something else touches these: they must stay as they are."""
        self._fixed.update(self._place(tensor)[0] for tensor in tensors)

    def is_free(self, tensor: Hashable) -> bool:
        """Has nothing fixed its stream so far?"""
        return self._place(tensor)[0] not in self._fixed

    def tie(self, part: Hashable, whole: Hashable, start: int) -> None:
        (first, here), (second, there) = self._place(part), self._place(whole)
        if first != second:
            self._parent[first] = (second, there + start - here)
            if first in self._fixed:
                self._fixed.add(second)
        elif here != there + start:  # one tensor at two places
            self._fixed.add(first)

    def _place(self, tensor: Hashable) -> tuple[Hashable, int]:
        """The tensor that stands for the stream, and where this one begins in it."""
        path: list[Hashable] = []
        root = tensor
        while root in self._parent:
            path.append(root)
            root = self._parent[root][0]
        start = 0
        for item in reversed(path):  # from now on all of them point to it directly
            start += self._parent[item][1]
            self._parent[item] = (root, start)
        return root, start

    def streams(self) -> list[Stream]:
        """Those that may be scaled and have somebody at both ends."""
        found: dict[Hashable, _Members] = {}
        for tensor, width in self._widths.items():
            root, start = self._place(tensor)
            if root not in self._fixed:
                members = found.setdefault(root, _Members(start, start))
                members.low = min(members.low, start)
                members.high = max(members.high, start + width)
        for role, op, tensor in self._ops:
            root, start = self._place(tensor)
            if root in found:
                found[root].ops[role].append((op, start))
        streams = [members.stream() for members in found.values()]
        return [stream for stream in streams if stream.makers and stream.readers]
