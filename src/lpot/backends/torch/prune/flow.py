"""What is known of channels while a run is watched: where they lie, and what is tied to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from lpot.core.compress.groups import Place
from lpot.core.ptq.streams import Ties


@dataclass(frozen=True)
class Lane:
    """Where the channels of a tensor lie: `step` of them at each place of the axis (a head has
    many), or `inner` places for each (a flattened picture)."""

    axis: int
    width: int
    step: int = 1
    inner: int = 1


class Flow:
    """What is known of the tensors of a run, and the ties between their channels."""

    def __init__(self, names: Mapping[int, str], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.names = names
        self.shapes = shapes
        self.ties = Ties()
        self.lanes: dict[int, Lane] = {}
        self.weights: dict[int, tuple[str, bool]] = {}  # views of parameters; transposed?
        self.places: dict[str, Place] = {}
        self.widths: dict[str, int] = {}
        self.blocks: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._kept: list[Any] = []  # ids stay unique while their tensors live

    def hold(self, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        self._kept.extend((*given, *made))

    def lane(self, tensor: Any) -> Lane | None:
        return self.lanes.get(id(tensor))

    def fix(self, tensors: Iterable[torch.Tensor]) -> None:
        self.ties.fix(id(tensor) for tensor in tensors if id(tensor) in self.lanes)

    def know(self, tensor: torch.Tensor, lane: Lane, *parts: tuple[torch.Tensor, int]) -> bool:
        """The tensor has these channels, made up of those of `parts` from their starts on."""
        self.lanes[id(tensor)] = lane
        self.ties.know(id(tensor), lane.width)
        for part, start in parts:
            if part is not tensor:
                self.ties.tie(id(part), id(tensor), start)
        if lane.step > 1:
            self._mark(tensor, lane.step)
        return True

    def _mark(self, tensor: torch.Tensor, block: int) -> None:
        op = f"block {block} of {len(self.blocks)}"
        self.blocks[op] = block
        self.ties.add(op, id(tensor))

    def group_by(self, tensor: torch.Tensor, block: int) -> None:
        if block > 1:
            self._mark(tensor, block)

    def param(self, tensor: Any) -> tuple[str, bool] | None:
        """The parameter behind a tensor, and whether it is transposed."""
        if id(tensor) in self.names:
            return self.names[id(tensor)], False
        return self.weights.get(id(tensor))

    def place(self, role: str, name: str, axis: int, size: int, at: Any, inner: int = 1) -> None:
        """Channels of the tensor `at` lie on an axis of a parameter of that size."""
        op = f"{name}@{axis}#{self._used.setdefault(name + role, 0)}"
        self._used[name + role] += 1
        work = (self.shapes[name], tuple(at.shape))
        self.places[op], self.widths[op] = Place(name, axis, inner, work), size // inner
        if role == "maker":
            self.ties.make(op, id(at), size // inner)
        elif role == "reader":
            self.ties.read(op, id(at))
        else:
            self.ties.add(op, id(at))
        if self._used[name + role] > 1:  # one weight at two places: it can't serve both
            self.ties.fix([id(at)])


def reshaped(lane: Lane, old: tuple[int, ...], new: tuple[int, ...]) -> Lane | None:
    """Where channels are after a view; None where they are torn or mixed.

    >>> reshaped(Lane(2, 12), (1, 5, 12), (1, 5, 3, 4))
    Lane(axis=2, width=12, step=4, inner=1)
    >>> reshaped(Lane(2, 12, 4), (1, 5, 3, 4), (5, 12)), reshaped(Lane(1, 8), (1, 8, 2, 2), (1, 32))
    (Lane(axis=1, width=12, step=1, inner=1), Lane(axis=1, width=8, step=1, inner=4))
    """
    before, size = prod(old[: lane.axis]), old[lane.axis]
    axis, passed = 0, 1
    while axis < len(new) and (passed < before or (new[axis] == 1 and size > 1)):
        passed *= new[axis]
        axis += 1
    if passed != before or axis == len(new):
        return None
    if new[axis] == size:
        return Lane(axis, lane.width, lane.step, lane.inner)
    if new[axis] < size and size % new[axis] == 0:  # split
        each = size // new[axis]
        if lane.inner == 1:
            return Lane(axis, lane.width, lane.step * each)
        return Lane(axis, lane.width, 1, lane.inner // each) if lane.inner % each == 0 else None
    if size and new[axis] % size == 0:  # merged with what follows
        each = new[axis] // size
        if lane.step == 1:
            return Lane(axis, lane.width, 1, lane.inner * each)
        return Lane(axis, lane.width, lane.step // each) if lane.step % each == 0 else None
    return None
