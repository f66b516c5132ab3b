"""Which cuts to make: the cheapest that together save as much time as was asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

MERGED = 0.5
CHEAPEST = 4  # cuts of which the next one is chosen
ATTEMPTS = 4  # at as much time saved as was asked for
ENOUGH, TOO_MUCH = 0.97, 1.1  # of it: times are no finer, and the last cuts cost the most accuracy
TRIES, PROMISING = 8, 0.9  # exchanges that are timed, and what single gains must promise of it


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


def exchanged(
    found: tuple[tuple[Cut, ...], float],
    ratio: float,
    cuts: Sequence[Cut],
    together: Callable[[tuple[Cut, ...]], float],
    timed: Callable[[tuple[Cut, ...]], float],
) -> tuple[tuple[Cut, ...], float]:
    """What was chosen, with cuts exchanged for milder ones as long as the error falls and as much
    is saved as was asked for.

    >>> a, b = Cut("a", 0.5, 0.1, 0.2), Cut("b", 0.5, 0.2, 0.2)
    >>> sums = lambda cuts: sum(cut.error for cut in cuts)
    >>> [cut.target for cut in exchanged(((a, b), 0.4), 0.2, [a, b], sums, _gain)[0]]
    ['a']
    """
    chosen, gain = found
    known = {chosen}
    while chosen and gain >= ENOUGH * ratio:
        wanted = PROMISING * ratio * _gain(chosen) / gain
        steps = {_filled(step, gone, cuts, wanted) for step, gone in _milder(chosen, cuts)} - known
        tried = sorted(filter(None, steps), key=_summed)[:TRIES]
        known |= {*tried}
        saved = {step: timed(step) for step in tried}
        enough = [step for step in tried if saved[step] >= ENOUGH * ratio][:CHEAPEST]
        best = min(enough, key=together, default=chosen)
        if best == chosen or together(best) >= together(chosen):
            break
        chosen, gain = best, saved[best]
    return chosen, gain


def _summed(cuts: Iterable[Cut]) -> tuple[float, tuple[Cut, ...]]:
    return sum(_cost(cut.error) for cut in cuts), tuple(cuts)


def _milder(chosen: tuple[Cut, ...], cuts: Sequence[Cut]) -> Iterator[tuple[tuple[Cut, ...], Cut]]:
    """With one cut less, or with another that saves less in the same place; and the one that is
    gone."""
    for cut in chosen:
        left = tuple(each for each in chosen if each is not cut)
        yield left, cut
        for other in cuts:
            inside = cut.block and other.target.startswith(f"{cut.target}.")
            if (inside or other.target == cut.target) and 0 < other.gain < cut.gain:
                yield (*left, other), cut


def _filled(
    chosen: tuple[Cut, ...], gone: Cut, cuts: Sequence[Cut], wanted: float
) -> tuple[Cut, ...]:
    """With more of the cheapest, until single gains add up to enough; nothing where they can't."""
    for cut in sorted(cuts, key=lambda each: (each.price, each.target, each.share)):
        if _gain(chosen) >= wanted:
            break
        step = _with(chosen, cut)
        if step is not None and cut.price < math.inf and cut is not gone:
            chosen = step
    return tuple(sorted(chosen, key=lambda cut: cut.target)) if _gain(chosen) >= wanted else ()


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
