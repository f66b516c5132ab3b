"""Which sets of ops in low precision are likely to meet the bar, as far as the trials tell.

Every op in low precision uses up some of what may be lost: in proportion to the noise that it adds
to the outputs, plus a part of its own that may as well be a gain, for near the bar a few samples
decide, and noise may push them either way. How much either part counts is not known: particles hold
many guesses, and each trial weighs them anew. It is Bayesian optimization by expected improvement
(Jones, Schonlau and Welch, "Efficient Global Optimization", 1998) on a linear threshold model.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

Masks = npt.NDArray[np.bool_]  # [sets, ops]: true where the op is in low precision
Floats = npt.NDArray[np.float64]

PARTICLES = 40_000
VALUES = 4_000_000  # that all particles may hold; nets of many ops get fewer of them
DRAWN = 96  # particles whose own best set is looked at
FEW = 8  # ops, up to which all sets are looked at
SLIP = 0.02  # share of trials that the model can't explain
COMMON = (1.0, 4.0)  # powers of ten: what noise counts that all samples see
SINGLE = (0.0, 3.0)  # powers of ten: what it counts for the few that decide
LEAST, WORST = 1e-12, 1e6  # noise of an op, as a share of the outputs' power
UNKNOWN = 0.01  # where no op was ranked


class Belief:
    """Learns from trials; tells how likely a set meets the bar. The same seed, the same answers.

    >>> belief = Belief([0.9, 1e-6, 1e-6], seed=0)
    >>> low = np.array([[True, True, True], [False, True, True]])
    >>> belief.learn(low[0], held=False)
    >>> bad, good = belief.probability(low)
    >>> bool(bad < 0.1 < 0.5 < good)
    True
    """

    def __init__(self, noise: Sequence[float], seed: int) -> None:
        known = np.clip(np.nan_to_num(np.asarray(noise, float), nan=WORST), 0.0, WORST)
        share = np.maximum(known, LEAST) if known.any() else np.full(len(known), UNKNOWN)
        self._random = np.random.default_rng(seed)
        count = min(PARTICLES, VALUES // len(share))
        common, single = (
            10 ** self._random.uniform(*ends, (count, 1)) for ends in (COMMON, SINGLE)
        )
        own = self._random.standard_normal((count, len(share)))
        self._used = common * share + single * np.sqrt(share) * own  # of all that may be lost
        self._weights = np.ones(count)

    def learn(self, low: Masks, held: bool) -> None:
        right = (self._used @ low < 1.0) == held
        self._weights *= np.where(right, 1.0 - SLIP, SLIP)
        self._weights /= self._weights.sum()

    def probability(self, low: Masks) -> Floats:
        """That each of these sets meets the bar."""
        holds = self._used @ low.T.astype(float) < 1.0
        return np.asarray(self._weights @ holds / self._weights.sum())

    def sets(self) -> Masks:
        """Sets worth a look: all of them, or those that single particles think best."""
        count = self._used.shape[1]
        if count <= FEW:
            return np.array(list(product((False, True), repeat=count)), bool)
        share = self._weights / self._weights.sum()
        drawn = self._used[self._random.choice(len(share), DRAWN, p=share)]
        order = np.argsort(drawn, axis=1)
        fits = np.cumsum(np.take_along_axis(drawn, order, axis=1), axis=1) < 1.0
        low = np.zeros_like(fits)
        np.put_along_axis(low, order, fits, axis=1)
        return low
