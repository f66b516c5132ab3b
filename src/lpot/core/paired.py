"""Exact bounds of a drop, from paired answers that are right or wrong.

Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
binomial" (1934), on the discordant answers that McNemar's test goes by (1947): those that one model
gets right and the other wrong. Agreement is evidence too, but never certainty: of n samples without
any discordant answer, up to 3 / n may still be lost.
"""

from __future__ import annotations

import math

import numpy as np

RISK = 0.05  # that the truth lies beyond one end
HALVINGS = 60  # of the interval in which a bound is looked for
FARTHEST = 10_000_000  # samples, beyond which nobody is told to evaluate more


def upper(count: int, of: int, risk: float = RISK) -> float:
    """The largest share that so many of so many do not contradict.

    >>> round(upper(0, 164), 4)
    0.0181
    """
    if count >= of:
        return 1.0
    low, high = count / of, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(count, of, middle) > risk else (low, middle)
    return high


def lower(count: int, of: int, risk: float = RISK) -> float:
    return 1.0 - upper(of - count, of, risk)


def _at_most(count: int, of: int, share: float) -> float:
    """The probability of at most so many, where each comes with this share."""
    if share <= 0.0:
        return 1.0
    if share >= 1.0:
        return float(count >= of)
    if count > of // 2:  # the shorter sum
        return 1.0 - _at_most(of - count - 1, of, 1.0 - share) if count < of else 1.0
    steps = np.arange(1, count + 1)
    odds = math.log(share) - math.log1p(-share)
    logs = np.concatenate(([0.0], np.cumsum(np.log((of - steps + 1) / steps) + odds)))
    start = of * math.log1p(-share)
    return float(np.exp(np.clip(logs + start, -745.0, 0.0)).sum())


def drop_bounds(lost: int, won: int, samples: int) -> tuple[float, float]:
    """Between which the share of answers lost, less those won, lies; each end may fail in 5 %.

    >>> tuple(round(end, 3) for end in drop_bounds(0, 0, 164))
    (-0.018, 0.018)
    """
    return -_most(won, lost, samples), _most(lost, won, samples)


def _most(lost: int, won: int, samples: int) -> float:
    # Where nothing was won there is nothing to set off, and the whole risk is for what was lost.
    if not won:
        return upper(lost, samples)
    return upper(lost, samples, RISK / 2) - lower(won, samples, RISK / 2)


def samples_to_decide(lost: int, won: int, samples: int, allowed: float) -> int | None:
    """How many samples, with discordant answers in proportion, would tell; None if too many.

    >>> samples_to_decide(0, 0, 164, allowed=0.01)
    299
    """
    low, high = samples, samples
    while not _decides(lost, won, samples, high, allowed):
        low, high = high, 2 * high
        if high > FARTHEST:
            return None
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if _decides(lost, won, samples, middle, allowed):
            high = middle
        else:
            low = middle
    return high


def _decides(lost: int, won: int, samples: int, of: int, allowed: float) -> bool:
    low, high = drop_bounds(round(lost * of / samples), round(won * of / samples), of)
    return high <= allowed or low > allowed
