"""Channels that can only be removed together, as data, and the choice of what to remove.

The dependency graph is that of Fang et al., "DepGraph: Towards Any Structural Pruning" (2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpot.core.ptq.streams import Stream

Floats = npt.NDArray[np.floating]
Kept = Mapping[str, tuple[int, ...]]  # group → the units that stay


@dataclass(frozen=True, order=True)
class Place:
    """Where channels lie: an axis of a tensor, with `inner` entries for each channel.

    `work` holds the sizes of the weight and of the values that pass it: places with equal work cost
    equal time.
    """

    tensor: str
    axis: int
    inner: int = 1
    work: tuple[tuple[int, ...], ...] = ()


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

    def channels(self, units: Iterable[int]) -> list[int]:
        """The channels of some units."""
        return [unit * self.block + lane for unit in units for lane in range(self.block)]

    def entries(self, slot: Slot, units: Iterable[int]) -> list[int]:
        """The entries on the slot's axis that belong to some units."""
        inner = slot.place.inner
        here = [channel - slot.start for channel in self.channels(units)]
        return [
            channel * inner + entry
            for channel in here
            if 0 <= channel < slot.width
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
class Cut:
    """A possible removal: so many units of a group, or a whole block of layers.

    `harm` is the distance of the outputs from FP32's with this cut alone, `gain` the share of the
    latency that it saves.
    """

    target: str
    share: float  # of the units that are removed; 1 for a block of layers
    harm: float
    gain: float
    block: bool = False

    @property
    def price(self) -> float:
        """Harm per latency gained. A distance of 1 is no signal left: it has no price."""
        if self.gain <= 0 or self.harm >= 1:
            return float("inf")
        return -math.log1p(-self.harm) / self.gain


def choose(cuts: Sequence[Cut], wanted: float) -> tuple[Cut, ...]:
    """The cheapest cuts that together save the wanted share of the latency.

    Greedy by sensitivity per latency gained; of one group the boldest chosen cut counts.

    >>> a, b = Cut("a", 0.5, 0.1, 0.2), Cut("b", 0.5, 0.9, 0.2)
    >>> [cut.target for cut in choose([b, a], 0.1)], len(choose([b, a], 0.3))
    (['a'], 2)
    """
    chosen: dict[str, Cut] = {}
    for cut in sorted(cuts, key=lambda cut: (cut.price, cut.target, cut.share)):
        if sum(each.gain for each in chosen.values()) >= wanted or cut.price == math.inf:
            break
        known = chosen.get(cut.target)
        if _inside_removed(cut.target, chosen) or (known is not None and known.gain >= cut.gain):
            continue
        if cut.block:  # what was chosen inside goes with it
            chosen = {
                name: each for name, each in chosen.items() if not name.startswith(f"{cut.target}.")
            }
        chosen[cut.target] = cut
    return tuple(chosen[name] for name in sorted(chosen))


def _inside_removed(target: str, chosen: Mapping[str, Cut]) -> bool:
    return any(cut.block and target.startswith(f"{name}.") for name, cut in chosen.items())


def strongest(importance: Floats, share: float, multiple: int = 1) -> tuple[int, ...]:
    """The units that stay when a share of them goes: at least one, a multiple where there is room.

    >>> strongest(np.array([0.1, 3.0, 2.0, 0.2]), 0.5)
    (1, 2)
    """
    count = importance.size
    left = max(1, round(count * (1 - share)))
    if count % multiple == 0 and count > multiple:
        left = max(multiple, -(-left // multiple) * multiple)
    order = np.argsort(-importance, kind="stable")[:left]
    return tuple(sorted(int(unit) for unit in order))
