"""Channels that can only be removed together, as data, and the choice of what to remove.

The dependency graph is that of Fang et al., "DepGraph: Towards Any Structural Pruning" (2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lpot.core.ptq.streams import Stream

Floats = npt.NDArray[np.floating]
Kept = Mapping[str, tuple[int, ...]]  # group → the units that stay
MERGED = 0.5
CHEAPEST = 4  # cuts of which the next one is chosen
ATTEMPTS = 4  # at as much time saved as was asked for
ENOUGH, TOO_MUCH = 0.97, 1.1  # of it: times are no finer, and the last cuts cost the most accuracy


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
class Left:
    """What is left of a model: units of groups, and blocks that are gone, or merged into one
    layer each."""

    kept: Kept = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cut:
    """A possible removal: so many units of a group, a whole block of layers, or all but one of
    them.

    `error` is the distance of the outputs from FP32's with this cut alone, `gain` the share of the
    latency that it saves.
    """

    target: str
    share: float  # of the units that are removed; of a block 1, or MERGED where one layer is left
    error: float
    gain: float
    block: bool = False

    @property
    def price(self) -> float:
        """Error per latency gained. A distance of 1 is no signal left: it has no price."""
        return _cost(self.error) / self.gain if self.gain > 0 and self.error < 1 else math.inf


def _cost(error: float) -> float:
    """Adds up where shares of a signal multiply."""
    return -math.log1p(-min(error, 1 - 1e-9))


def choose(
    cuts: Sequence[Cut],
    wanted: float,
    together: Callable[[tuple[Cut, ...]], float] | None = None,
) -> tuple[Cut, ...]:
    """The cheapest cuts that together save the wanted share of the latency.

    Greedy by sensitivity per latency gained; of one group the boldest chosen cut counts. `together`
    measures the error of several cuts. Channels add up well enough, but blocks of layers stand in
    for one another: before one goes, the few cheapest cuts are tried with those chosen already.

    >>> a, b = Cut("a", 0.5, 0.1, 0.2), Cut("b", 0.5, 0.9, 0.2)
    >>> [cut.target for cut in choose([b, a], 0.1)], len(choose([b, a], 0.3))
    (['a'], 2)
    """
    ordered = sorted(
        (cut for cut in cuts if cut.price < math.inf),
        key=lambda cut: (cut.price, cut.target, cut.share),
    )
    chosen: tuple[Cut, ...] = ()
    cost = 0.0
    while _gain(chosen) < wanted:
        steps = [step for cut in ordered if (step := _with(chosen, cut)) is not None]
        if not steps:
            break
        if together is None or not chosen or not steps[0][-1].block:
            chosen = steps[0]
            cost += _cost(chosen[-1].error)
            continue
        tried = [(_cost(together(step)), step) for step in steps[:CHEAPEST]]
        now = _gain(chosen), cost
        cost, chosen = min(tried, key=lambda pair: (pair[0] - now[1]) / (_gain(pair[1]) - now[0]))
    return tuple(sorted(chosen, key=lambda cut: cut.target))


def saving(
    ratio: float,
    pick: Callable[[float], tuple[Cut, ...]],
    timed: Callable[[tuple[Cut, ...]], float],
) -> tuple[tuple[Cut, ...], float]:
    """The fewest cuts that save a share of the latency, and what they save.

    Gains of single cuts are short measurements and do not quite add up: the whole is timed, and
    more or less is cut where it saves too little or too much.
    """
    wanted, low, high = ratio, 0.0, math.inf  # sums of single gains: too few, enough
    found: tuple[tuple[Cut, ...], float] = ((), 0.0)
    for _ in range(ATTEMPTS):
        cuts = pick(wanted)
        promised = _gain(cuts)
        if not cuts or not low < promised < high:
            break
        gain = timed(cuts)
        if gain >= ENOUGH * ratio:
            high, found = promised, (cuts, gain)
            if gain <= TOO_MUCH * ratio:
                break
        else:
            low = promised
            found = found if high < math.inf else (cuts, gain)
        wanted = promised * min(ratio / gain, 2.0) if gain > 0 else 2.0 * promised
        if not low < wanted < high:
            wanted = (low + high) / 2 if high < math.inf else 2.0 * low
    return found


def _gain(cuts: Iterable[Cut]) -> float:
    return sum(cut.gain for cut in cuts)


def _with(chosen: tuple[Cut, ...], cut: Cut) -> tuple[Cut, ...] | None:
    """One cut more, in the place of what goes with it; None where that saves nothing."""
    if any(each.block and cut.target.startswith(f"{each.target}.") for each in chosen):
        return None
    inside = f"{cut.target}." if cut.block else None
    left = tuple(
        each
        for each in chosen
        if each.target != cut.target and not (inside and each.target.startswith(inside))
    )
    step = (*left, cut)
    return step if _gain(step) > _gain(chosen) else None


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
