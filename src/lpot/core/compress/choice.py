"""Which cuts to make: the cheapest that together save as much time as was asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

MERGED = 0.5
CHEAPEST = 4  # cuts of which the next one is chosen
ATTEMPTS = 4  # at as much time saved as was asked for
ENOUGH, TOO_MUCH = 0.97, 1.1  # of it: times are no finer, and the last cuts cost the most accuracy
PROMISING = 0.93  # what single gains must promise of it
TRIES, COMPARED = 16, 8  # sets of cuts that are timed, and whose error is measured
TURNS = 3  # in which these are timed again
STEPS, DEEP = 50, 2  # of gains, in the search for sets


@dataclass(frozen=True, order=True)
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


Saving = tuple[tuple[Cut, ...], float]  # cuts, and the share of the latency that they save


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
) -> Saving:
    """The fewest cuts that save a share of the latency, and what they save.

    Gains of single cuts are short measurements and do not quite add up: the whole is timed, and
    more or less is cut where it saves too little or too much.
    """
    wanted, low, high = ratio, 0.0, math.inf  # sums of single gains: too few, enough
    found: Saving = ((), 0.0)
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


def ranked(
    found: Saving,
    ratio: float,
    cuts: Sequence[Cut],
    together: Callable[[tuple[Cut, ...]], float],
    timed: Callable[[tuple[Cut, ...]], float],
) -> list[Saving]:
    """What was chosen and what else saves as much as was asked for, those with the least error
    first.

    A greedy choice never takes a cut back: what it began with may not be needed in the end. One
    measurement of time may be wrong by a tenth on a busy machine: `timed` gives the median of all.

    >>> a, b = Cut("a", 0.5, 0.1, 0.2), Cut("b", 0.5, 0.2, 0.2)
    >>> sums = lambda cuts: sum(cut.error for cut in cuts)
    >>> ["".join(cut.target for cut in some)
    ...     for some, _ in ranked(((a, b), 0.4), 0.2, [a, b], sums, _gain)]
    ['a', 'b', 'ab']
    """
    chosen, gain = found
    if gain < ENOUGH * ratio:
        return [found]
    fast = [chosen]
    for step in alternatives(cuts, PROMISING * ratio * _gain(chosen) / gain, TRIES):
        if len(fast) <= COMPARED and step != chosen and timed(step) >= ENOUGH * ratio:
            fast.append(step)
    saved: dict[tuple[Cut, ...], float] = {}
    for turn in range(TURNS):
        for step in fast:
            if turn == 0:
                together(step)  # meanwhile, a busy neighbour may have gone
            saved[step] = timed(step)
    fast = [step for step in fast if saved[step] >= ENOUGH * ratio]
    best = sorted(fast or [max(saved, key=lambda step: saved[step])], key=together)
    return [(step, saved[step]) for step in best]


def alternatives(cuts: Sequence[Cut], wanted: float, most: int) -> list[tuple[Cut, ...]]:
    """The cheapest sets of cuts whose gains add up to what is wanted, all measured alone; none
    holds a cut that it could do without.

    >>> a, b, c = Cut("a", 0.5, 0.1, 0.2), Cut("b", 0.5, 0.2, 0.2), Cut("c", 0.5, 0.3, 0.1)
    >>> ["".join(cut.target for cut in some) for some in alternatives([a, b, c], 0.3, 9)]
    ['ab', 'ac', 'bc']
    """
    kinds: dict[str, list[Cut]] = {}
    for cut in sorted(cuts):
        if cut.price < math.inf:
            kinds.setdefault(cut.target, []).append(cut)
    sets: list[tuple[float, float, tuple[Cut, ...]]] = [(0.0, 0.0, ())]  # cost, gain
    for options in kinds.values():
        grown = [
            (cost + _cost(cut.error), gain + cut.gain, (*chosen, cut))
            for cost, gain, chosen in sets
            if gain < wanted
            for cut in options
            if not any(_meet(cut, other) for other in chosen)
        ]
        sets = _cheapest([*sets, *grown], wanted, most)
    enough = [chosen for _, gain, chosen in sets if gain >= wanted]
    return [some for some in enough if all(_gain(some) - cut.gain < wanted for cut in some)][:most]


def _cheapest(
    sets: Iterable[tuple[float, float, tuple[Cut, ...]]], wanted: float, most: int
) -> list[tuple[float, float, tuple[Cut, ...]]]:
    """A few of those that gain about the same."""
    counts: Counter[int] = Counter()
    found = []
    for cost, gain, chosen in sorted(sets):
        step = min(STEPS, int(STEPS * gain / wanted)) if wanted > 0 else STEPS
        counts[step] += 1
        if counts[step] <= DEEP * most:
            found.append((cost, gain, chosen))
    return found


def _meet(one: Cut, other: Cut) -> bool:
    """Is one of them inside of the other?"""
    return (one.block and other.target.startswith(f"{one.target}.")) or (
        other.block and one.target.startswith(f"{other.target}.")
    )


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
