"""Timing a callable, and telling from rounds taken in turns which of two is faster."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lpot.core.load import QUIET, Load, Meter

Verdict = Literal["faster", "slower", "no significant difference"]

CONFIDENCE = 0.99  # one model against itself may be called different once in a hundred, at most
# Two processes of one program differ by a few per cent for as long as they live (where their memory
# lies, which core they are on): less than this is never called a difference.
MINIMUM_EFFECT = 0.03
ROUNDS = 15  # holds up when a quarter of the rounds is disturbed by a factor of up to 2.5
MOST_DISTURBED = 0.25  # of the rounds: with more, their ratio is that of somebody else's work


@dataclass(frozen=True)
class Timing:
    """Seconds per call, kept by rounds: a round is one uninterrupted turn at the machine.

    >>> timing = Timing(((0.010, 0.012), (0.011, 0.013)), batch_size=4)
    >>> round(timing.median * 1000, 1), round(timing.throughput)
    (11.5, 348)
    """

    rounds: tuple[tuple[float, ...], ...]
    batch_size: int = 1
    loads: tuple[Load, ...] = ()  # of the machine by round, where that is known
    paces: tuple[tuple[float, ...], ...] = ()  # seconds a batch by round, of instances together

    def __post_init__(self) -> None:
        if not self.rounds or not all(self.rounds):
            raise ValueError("a timing needs at least one round, and each round one sample")

    @cached_property
    def samples(self) -> tuple[float, ...]:
        return tuple(sample for turn in self.rounds for sample in turn)

    @cached_property
    def round_medians(self) -> tuple[float, ...]:
        return tuple(float(np.median(turn)) for turn in self.rounds)

    def percentile(self, q: float) -> float:
        return float(np.percentile(self.samples, q))

    @property
    def median(self) -> float:
        return self.percentile(50)

    @property
    def minimum(self) -> float:
        return min(self.samples)

    @property
    def spread(self) -> float:
        """Half the samples lie within this many seconds of each other (interquartile range)."""
        return self.percentile(75) - self.percentile(25)

    @property
    def disturbed(self) -> float:
        """The share of the rounds in which others took much of the machine."""
        return sum(load.is_disturbed for load in self.loads) / max(1, len(self.loads))

    @property
    def throughput(self) -> float:
        """Samples (not batches) per second at the median latency."""
        return self.batch_size / self.median if self.median else math.inf

    def to_json(self) -> dict[str, Any]:
        """All in seconds; of the samples only the rounds' medians are kept."""
        return {
            "count": len(self.samples),
            "median": self.median,
            "spread": self.spread,
            "minimum": self.minimum,
            "p50": self.median,
            "p90": self.percentile(90),
            "p99": self.percentile(99),
            "throughput": self.throughput,
            "batch_size": self.batch_size,
            "round_medians": list(self.round_medians),
            "disturbed": self.disturbed,
            "loads": [asdict(load) for load in self.loads],
        }


SLACK = 1.05  # between the ratio of two medians and the interval of that of rounds


def fits(before: float, after: float, span: tuple[float, float]) -> bool:
    """Do two latencies tell the same as the ratio beside them, which was found round by round?

    >>> fits(23.7, 9.69, (1.95, 2.05)), fits(23.7, 11.7, (1.95, 2.05))
    (False, True)
    """
    return span[0] / SLACK <= before / after <= span[1] * SLACK


@dataclass(frozen=True)
class Comparison:
    """How many times faster the other is than the first, and between which bounds that lies."""

    ratio: float
    low: float
    high: float
    verdict: Verdict
    confidence: float = CONFIDENCE  # of the interval as it came out, at least what was asked for
    taken: float = 0.0  # of the machine, by others: beyond `QUIET` CPU times are compared

    @property
    def busy(self) -> bool:
        """Was there no quiet to be had? The figures are ratios of CPU time then."""
        return self.taken > QUIET

    @property
    def significant(self) -> bool:
        return self.verdict != "no significant difference"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "busy": self.busy}

    def __str__(self) -> str:
        span = f"{self.ratio:.2f}x [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.verdict} ({span}{', by CPU time: the machine was busy' * self.busy})"


def quiet_clock() -> Callable[[], float]:
    """The wall clock; with `LPOT_THREADS=1`, the CPU time of the thread, which others can't take
    from it: a busy machine gives the same times."""
    return time.thread_time if os.environ.get("LPOT_THREADS") == "1" else time.perf_counter


def latency(
    call: Callable[[], object],
    *,
    warmup: int = 5,
    iteration: int | None = None,
    seconds: float = 1.0,
    minimum: int = 3,
    batch_size: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time `call` one round long: `iteration` times, or for about `seconds` and `minimum` times.

    >>> len(latency(lambda: None, warmup=1, iteration=7).samples)
    7
    """
    if warmup < 0:
        raise ValueError(f"warmup is {warmup}: it can't be negative")
    if iteration is not None and iteration < 1:
        raise ValueError(f"iteration is {iteration}: at least one timed run is needed")
    for _ in range(warmup):
        call()
    samples: list[float] = []
    meter = Meter()
    begin = clock()
    while True:
        start = clock()
        call()
        end = clock()
        samples.append(end - start)
        if iteration is not None:
            if len(samples) >= iteration:
                break
        elif end - begin >= seconds and len(samples) >= minimum:
            break
    # Of a clock that is not the wall's, or is made up, others take nothing.
    loads = (meter.read(len(samples)),) if clock is time.perf_counter else ()
    return Timing((tuple(samples),), batch_size, loads)


def turns(count: int, rounds: int) -> Iterator[int]:
    """Whose turn it is, `rounds` times each; every other round runs backwards, so that a machine
    which grows slower (or faster) all the while treats all alike.

    >>> list(turns(2, 3))
    [0, 1, 1, 0, 0, 1]
    """
    for index in range(rounds):
        order = range(count)
        yield from (reversed(order) if index % 2 else order)


def take_turns(
    count: int,
    rounds: int,
    run: Callable[[int], Load],
    settle: Callable[[int, int, bool], None],
    told: Callable[[int], None] = lambda done: None,
) -> None:
    """All in turns; then rounds that others have disturbed once more, the worst first.

    `run(who)` is one turn. After a round was repeated, `settle(who, at, better)` is to put what
    came last in the place of round `at`, or to drop it. Half as many turns more are taken at most.
    """
    worst = [0.0] * rounds
    for done, who in enumerate(turns(count, rounds)):
        worst[done // count] = max(worst[done // count], run(who).taken)
        told(done + 1)
    for _ in range(rounds // 2):
        at = worst.index(max(worst))
        if worst[at] <= QUIET:
            return
        taken = max(run(who).taken for who in range(count))
        for who in range(count):
            settle(who, at, taken < worst[at])
        worst[at] = min(taken, worst[at])


def compare_timings(first: Timing, other: Timing, *, confidence: float = CONFIDENCE) -> Comparison:
    """`compare`; by CPU time where more rounds were disturbed than medians can stand.

    Others that take the cores slow down one more than the other, many times over where threads wait
    for each other: a ratio by the clock says nothing then. CPU time is the smaller lie, for threads
    that wait by spinning count as work; `busy` says that it was needed.
    """
    pairs = list(zip(first.loads, other.loads, strict=False))
    taken = [max(one.taken, two.taken) for one, two in pairs]
    if sum(share > QUIET for share in taken) <= MOST_DISTURBED * len(taken):
        return compare(
            first.paces or first.rounds, other.paces or other.rounds, confidence=confidence
        )
    work = [[[load.cpu / load.calls] for load in timing.loads] for timing in (first, other)]
    found = compare(*work, confidence=confidence)
    return replace(found, taken=max(taken))


def compare(
    first: Sequence[Sequence[float]],
    other: Sequence[Sequence[float]],
    *,
    confidence: float = CONFIDENCE,
    minimum_effect: float = MINIMUM_EFFECT,
) -> Comparison:
    """Is `other` faster than `first`? Both are rounds of seconds, taken in turns and equally many.

    The unit is the round, not the call: calls of one round share its luck. Each pair of rounds
    gives one ratio of medians, and the answer is the centre of these (Hodges-Lehmann) with its
    exact interval (Wilcoxon): no shape of the noise is assumed, disturbed rounds may be among
    them, no random numbers are drawn.

    >>> compare([[2.0, 2.1, 2.0]] * 8, [[1.0, 1.0, 1.1]] * 8).verdict
    'faster'
    >>> compare([[1.0]] * 8, [[1.01]] * 8).verdict
    'no significant difference'
    """
    if len(first) != len(other):
        raise ValueError(f"rounds come in pairs, but there are {len(first)} and {len(other)}")
    needed = rounds_needed(confidence)
    if len(first) < needed:
        raise ValueError(
            f"{len(first)} rounds are too few for a verdict at confidence {confidence}: "
            f"give at least {needed}"
        )
    logs = _log_medians(first) - _log_medians(other)
    upper = np.triu_indices(len(logs))
    means = np.sort((logs[upper[0]] + logs[upper[1]]) / 2)
    skip, reached = _rank_interval(len(logs), confidence)
    ratio, low, high = np.exp([np.median(means), means[skip], means[-1 - skip]]).tolist()
    verdict: Verdict = "no significant difference"
    if low > 1 and ratio >= 1 + minimum_effect:
        verdict = "faster"
    elif high < 1 and ratio <= 1 / (1 + minimum_effect):
        verdict = "slower"
    return Comparison(ratio, low, high, verdict, reached)


def rounds_needed(confidence: float = CONFIDENCE) -> int:
    """The fewest rounds that can reach this confidence.

    >>> rounds_needed(0.95), rounds_needed(0.99)
    (6, 8)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}: it must be between 0 and 1")
    return math.ceil(1 - math.log2(1 - confidence))


def _log_medians(rounds: Sequence[Sequence[float]]) -> np.ndarray:
    medians = np.array([np.median(turn) for turn in rounds])
    if not (medians > 0).all():
        raise ValueError("a round's median is zero: the call is too short to time")
    logs: np.ndarray = np.log(medians)
    return logs


def _rank_interval(count: int, confidence: float) -> tuple[int, float]:
    """How many of the sorted pairwise means to leave out at each end, and the confidence reached.

    If there is no difference each ratio is above or below 1 by the toss of a coin: the sum of
    the ranks of those above then has the distribution built here, one rank at a time.
    """
    chance = np.ones(1)
    for rank in range(1, count + 1):
        wider = np.zeros(len(chance) + rank)
        wider[: len(chance)] += chance / 2
        wider[rank:] += chance / 2
        chance = wider
    outside = 2 * np.cumsum(chance)
    skip = int(np.searchsorted(outside, 1 - confidence + 1e-12, side="right")) - 1
    return skip, float(1 - outside[skip])
