"""Where to cut next when the shortest prefix that meets the bar is looked for.

Halving finds one of n answers in log2(n) steps. What is known of the ops without labels makes some
answers likelier than others: the cut goes through the middle of the likelihood, and is held where
halving can still finish in the steps that are left. One guess that is nearly sure may go further:
if it proves wrong, the steps that are left still find an answer, though not always the shortest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

# Output noise, as a share of the output's power, that nets usually bear within one per cent.
BEARABLE = 0.01
# Sensitivity that can't be measured (NaN, infinite outputs) counts as this much noise.
WORST = 1e6
STEEPNESS = 2.0  # how sharply, in log noise, passing follows failing
DOUBT = 0.1  # share of the likelihood that is spread evenly: a ranking may be wrong
SURE = 0.75  # likelihood of one answer that is worth a guess


def steps_for(answers: int) -> int:
    """Halvings that tell so many answers apart."""
    return math.ceil(math.log2(answers)) if answers > 1 else 0


class Bracket:
    """The answers 1 … n that are still possible, and the steps left to find the right one.

    `sensitivity` is that of the ops in their order; the answer k leaves those from k on in low
    precision.

    >>> bracket = Bracket([0.9, 1e-5, 1e-5, 1e-5], steps=2)
    >>> bracket.cut(threshold=0.01)
    1
    """

    def __init__(self, sensitivity: Sequence[float], steps: int) -> None:
        finite = [min(max(value, 0.0), WORST) for value in sensitivity]
        self.low, self.high = 1, len(finite)
        self.steps = steps
        self.holds = False  # an answer that meets the bar was seen
        self.trusts = True  # no sure guess was wrong so far
        left = [0.0]
        for value in reversed(finite):
            left.append(left[-1] + value)
        self.noise = left[::-1]  # [k]: of the ops that the answer k leaves in low precision

    @property
    def is_open(self) -> bool:
        return self.low < self.high and self.steps > 0

    def cut(self, threshold: float) -> int:
        """The prefix to try next, if noise up to about `threshold` meets the bar."""
        half = 1 << (self.steps - 1)
        least = max(self.low, self.high - half)  # further down a miss could not be made good
        most = min(self.high - 1, self.low - 1 + half)
        k, likelihood = self._middle(threshold)
        if likelihood >= SURE and self.trusts and (self.holds or self.steps > 1):
            return k
        if least <= most:
            return min(max(k, least), most)
        return k if self.holds else max(k, least)

    def cuts(self, threshold: float, count: int) -> list[int]:
        """As many to try side by side: the likely one, and others that part the answers evenly.

        Each round leaves half of the answers at most, and with more workers as many parts fewer.

        >>> Bracket([1.0] * 100, steps=7).cuts(threshold=0.01, count=4)
        [25, 50, 64, 75]
        """
        likely = self.cut(threshold)
        width = self.high - self.low + 1
        evenly = (self.low - 1 + width * part // count for part in range(1, count))
        inside = {min(max(k, self.low), self.high - 1) for k in evenly}
        return sorted({likely, *inside})

    def _middle(self, threshold: float) -> tuple[int, float]:
        """The answer up to which half of the likelihood lies, and its own share of it."""
        first = self._passing(self.low - 1, threshold)
        span = self._passing(self.high, threshold) - first
        before = 0.0
        for k in range(self.low, self.high):
            evenly = (k - self.low + 1) / (self.high - self.low + 1)
            known = (self._passing(k, threshold) - first) / span if span > 0 else evenly
            upto = (1 - DOUBT) * known + DOUBT * evenly
            if upto >= 0.5:
                return k, upto - before
            before = upto
        return self.high - 1, 0.0

    def learn(self, k: int, holds: bool) -> None:
        half = 1 << (self.steps - 1)
        self.steps -= 1
        if holds:
            self.high, self.holds = k, True
        else:
            self.trusts = self.trusts and self.high - k <= half
            self.low = k + 1

    def learn_all(self, tried: Mapping[int, bool]) -> int:
        """What a round of several told; the one of them nearest to the answer."""
        if len(tried) == 1:
            ((k, holds),) = tried.items()
            self.learn(k, holds)
            return k
        self.steps -= 1
        holding = [k for k, holds in tried.items() if holds]
        self.high, self.holds = min([self.high, *holding]), self.holds or bool(holding)
        missing = [k for k, holds in tried.items() if not holds and k < self.high]
        self.low = max([self.low, *(k + 1 for k in missing)])
        return max(missing, default=min(tried))

    def _passing(self, k: int, threshold: float) -> float:
        """How likely the bar holds with the first k in float."""
        if self.noise[k] <= 0.0:
            return 1.0
        return 1.0 / (1.0 + math.pow(self.noise[k] / threshold, STEEPNESS))


def bearable(noise: float, lost: float | None, allowed: float) -> float:
    """The noise at which the bar is expected, from one trial: its noise and what it lost.

    Decisions flip in proportion to the noise's amplitude, the square root of its power. One trial
    far from the bar tells little: half of the guess (in log) is what nets bear in general.
    """
    if lost is None or lost <= 0 or noise <= 0:
        return BEARABLE
    told = noise * (max(allowed, 1e-6 * lost) / lost) ** 2
    return math.sqrt(told * BEARABLE)
