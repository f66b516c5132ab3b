"""Where to cut next when the shortest prefix that meets the bar is looked for.

Halving finds one of n answers in log2(n) steps. What is known of the ops without labels makes some
answers likelier than others: the cut goes through the middle of the likelihood, wherever that is,
until an answer is found. The last steps before that are kept for halving, which finds one; once
there is one, the steps that are left make it shorter, though not always the shortest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

# Output noise, as a share of the output's power, that nets usually bear within one per cent.
BEARABLE = 0.01
# Sensitivity that can't be measured (NaN, infinite outputs) counts as this much noise.
WORST = 1e6
STEEPNESS = 4.0  # how sharply, in log noise, passing follows failing
DOUBT = 0.1  # share of the likelihood that is spread evenly: a ranking may be wrong
SURE = 0.75  # likelihood of one answer that is worth a guess
FAR = 100.0  # times what may be lost: a trial that far off tells little
LAST = 2  # steps that are kept for finding an answer at all


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
        k, likelihood = self._middle(threshold)
        is_sure = likelihood >= SURE and self.trusts and self.steps > 1
        if self.holds or self.steps > LAST or is_sure:
            return k
        # Further down a miss could not be made good.
        return max(k, self.low, self.high - (1 << (self.steps - 1)))

    def cuts(self, threshold: float, count: int) -> list[int]:
        """As many to try side by side: the likely one, and others that part the answers evenly.

        Each round leaves half of the answers at most, and with more workers as many parts fewer.

        >>> Bracket([1.0] * 100, steps=7).cuts(threshold=0.01, count=4)
        [25, 50, 75, 99]
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


def bearable(seen: Sequence[tuple[float, float]], allowed: float) -> float:
    """The noise at which the bar is expected, from trials: the noise of each and what it lost.

    The trial that is nearest to the bar tells it. Its loss is taken to fall as the noise's power
    does: labels fall so, answers that are compared as numbers more slowly, and a cut too low tells
    more than one too high. The further the trial is from the bar, the more counts what nets bear in
    general.
    """
    told = [(noise, lost) for noise, lost in seen if noise > 0.0 and lost > 0.0]
    if not told:
        return BEARABLE
    least = max(allowed, 1e-6 * max(lost for _, lost in told))
    noise, lost = min(told, key=lambda one: abs(math.log(one[1] / least)))
    guess = noise * least / lost
    doubt = min(abs(math.log(lost / least)) / math.log(FAR), 1.0) / 2.0
    return float(guess ** (1.0 - doubt) * BEARABLE**doubt)
