"""Channels that can only be removed together, as data.

The dependency graph is that of Fang et al., "DepGraph: Towards Any Structural Pruning" (2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lpot.core.ptq.streams import Stream

Floats = npt.NDArray[np.floating]
Kept = Mapping[str, tuple[int, ...]]  # group → the units that stay


@dataclass(frozen=True, order=True)
class Place:
    """Where channels lie: an axis of a tensor, with `inner` entries for each channel, all of them
    `outer` times (a flattened picture whose channels come last).

    `work` holds the sizes of the weight and of the values that pass it: places with equal work cost
    equal time.
    """

    tensor: str
    axis: int
    inner: int = 1
    work: tuple[tuple[int, ...], ...] = ()
    outer: int = 1


@dataclass(frozen=True)
class Slot:
    """A place that holds `width` channels of a group, from `start` on."""

    place: Place
    start: int
    width: int
    reads: bool = False


@dataclass(frozen=True)
class Group:
    """Channels that go together. A unit is what can go at once: a channel, or all of a head.

    >>> Group("fc1", 8, 4, ()).units
    2
    """

    name: str
    size: int
    block: int
    slots: tuple[Slot, ...]

    @property
    def units(self) -> int:
        return self.size // self.block

    @property
    def kind(self) -> tuple[object, ...]:
        """The same for groups whose cuts gain alike."""
        places = sorted((slot.place.axis, slot.width, slot.place.work) for slot in self.slots)
        return (self.size, self.block, *places)

    @property
    def spans(self) -> tuple[range, ...]:
        """The units of each place that holds some of them: a layer needs one at least."""
        return tuple(
            range(slot.start // self.block, -(-(slot.start + slot.width) // self.block))
            for slot in self.slots
        )

    def channels(self, units: Iterable[int]) -> list[int]:
        """The channels of some units."""
        return [unit * self.block + lane for unit in units for lane in range(self.block)]

    def entries(self, slot: Slot, units: Iterable[int]) -> list[int]:
        """The entries on the slot's axis that belong to some units."""
        inner, width = slot.place.inner, slot.width
        here = [channel - slot.start for channel in self.channels(units)]
        return [
            (turn * width + channel) * inner + entry
            for turn in range(slot.place.outer)
            for channel in here
            if 0 <= channel < width
            for entry in range(inner)
        ]


def group_of(
    stream: Stream,
    places: Mapping[str, Place],
    widths: Mapping[str, int],
    blocks: Mapping[str, int],
) -> Group | None:
    """A stream of channels as a group; None where its units would be torn apart."""
    slots: list[Slot] = []
    block = 1
    for ops, reads in ((stream.makers, False), (stream.biases, False), (stream.readers, True)):
        for op, start in ops:
            if op in blocks:
                block = int(np.lcm(block, blocks[op]))
                if start % blocks[op]:
                    return None
            else:
                slots.append(Slot(places[op], start, widths[op], reads))
    if stream.size % block or stream.size // block < 2:
        return None
    makers = sorted(places[op].tensor for op, _ in stream.makers)
    return Group(makers[0].rpartition(".")[0], stream.size, block, tuple(slots))


@dataclass(frozen=True)
class Left:
    """What is left of a model: units of groups, and blocks that are gone, or merged into one
    layer each."""

    kept: Kept = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()

    @property
    def outside(self) -> Kept:
        """The units that are left, without groups in blocks that go as a whole.

        >>> Left({"a.conv": (0,), "b.conv": (1,)}, removed=("a",)).outside
        {'b.conv': (1,)}
        """
        inside = tuple(f"{name}." for name in (*self.removed, *self.merged))
        return {
            name: units for name, units in self.kept.items() if not f"{name}.".startswith(inside)
        }


def entries_left(
    groups: Iterable[Group], kept: Kept, shapes: Mapping[str, Sequence[int]]
) -> dict[tuple[str, int], npt.NDArray[np.bool_]]:
    """Which entries of tensors stay, by name and axis.

    >>> group = Group("a", 3, 1, (Slot(Place("a.weight", 0), 0, 3),))
    >>> entries_left([group], {"a": (0, 2)}, {"a.weight": (3, 5)})
    {('a.weight', 0): array([ True, False,  True])}
    """
    masks: dict[tuple[str, int], npt.NDArray[np.bool_]] = {}
    for group in groups:
        if group.name not in kept:
            continue
        gone = set(range(group.units)) - set(kept[group.name])
        for slot in group.slots:
            name, axis = slot.place.tensor, slot.place.axis
            mask = masks.setdefault((name, axis), np.ones(shapes[name][axis], np.bool_))
            mask[group.entries(slot, gone)] = False
    return masks


def strongest(
    importance: Floats, share: float, multiple: int = 1, spans: Iterable[range] = ()
) -> tuple[int, ...]:
    """The units that stay when a share of them goes: at least one, and one of each span; a multiple
    where there is room.

    >>> strongest(np.array([0.1, 3.0, 2.0, 0.2]), 0.5)
    (1, 2)
    >>> strongest(np.array([0.1, 0.2, 2.0, 3.0]), 0.5, spans=[range(2), range(2, 4)])
    (1, 3)
    """
    count = importance.size
    left = max(1, round(count * (1 - share)))
    if count % multiple == 0 and count > multiple:
        left = max(multiple, -(-left // multiple) * multiple)
    needed = dict.fromkeys(max(span, key=lambda unit: importance[unit]) for span in spans)
    order = [int(unit) for unit in np.argsort(-importance, kind="stable")]
    first = [*needed, *(unit for unit in order if unit not in needed)]
    return tuple(sorted(first[: max(left, len(needed))]))
