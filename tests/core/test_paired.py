"""Bounds of a drop hold as often as they say: counted exactly, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lpot.core.evaluation.tally import MeanPieces
from lpot.core.goal import Goal
from lpot.core.numerics.resample import (
    RISK,
    Interval,
    drop_bounds,
    lower,
    paired_interval,
    samples_to_decide,
    upper,
)


def binomial(of: int, share: float) -> np.ndarray:
    return np.array([math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(of + 1)])


@pytest.mark.parametrize("of", [1, 10, 41])
@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 0.5, 0.97])
def test_clopper_pearson_covers(of: int, share: float) -> None:
    odds = binomial(of, share)
    assert sum(p for k, p in enumerate(odds) if upper(k, of) < share) <= RISK + 1e-9
    assert sum(p for k, p in enumerate(odds) if lower(k, of) > share) <= RISK + 1e-9


def test_known_bounds() -> None:
    # Of the tables of Clopper and Pearson, and the rule of three.
    assert upper(0, 164) == pytest.approx(1 - 0.05 ** (1 / 164), abs=1e-9)
    assert upper(3, 10, 0.025) == pytest.approx(0.6525, abs=1e-4)
    assert lower(3, 10, 0.025) == pytest.approx(0.0667, abs=1e-4)
    assert lower(0, 10) == 0.0 and upper(10, 10) == 1.0


@pytest.mark.parametrize("of", [12, 24])
@pytest.mark.parametrize(
    ("lost", "won"), [(0.0, 0.0), (0.01, 0.0), (0.03, 0.03), (0.1, 0.02), (0.02, 0.1), (0.2, 0.2)]
)
def test_paired_bounds_cover(of: int, lost: float, won: float) -> None:
    """Every outcome that has a chance, weighed by it (a trinomial): no luck of a seed."""
    beyond = {"low": 0.0, "high": 0.0}
    for one in range(of + 1):
        for other in range(of + 1 - one):
            rest = of - one - other
            ways = math.comb(of, one) * math.comb(of - one, other)
            odds = ways * lost**one * won**other * (1 - lost - won) ** rest
            if odds < 1e-9:
                continue
            low, high = drop_bounds(one, other, of)
            beyond["high"] += odds * (high < lost - won - 1e-12)
            beyond["low"] += odds * (low > lost - won + 1e-12)
    assert max(beyond.values()) <= RISK + 1e-6


def pieces(scores: np.ndarray) -> MeanPieces:
    return MeanPieces(tuple(range(len(scores))), scores.astype(float))


def test_agreement_is_no_certainty() -> None:
    right = np.arange(164) % 10 > 0
    found = paired_interval(pieces(right), pieces(right), Goal(absolute=0.01))
    assert found is not None and found.draws == 0
    assert found.high == pytest.approx(0.0181, abs=1e-4) and found.low == -found.high
    assert found.holds(0.01) is None and found.needed == pytest.approx(299, abs=3)
    assert found.holds(0.02) is True


def test_order_and_unit_of_answers() -> None:
    right = np.arange(200) % 10 > 0
    after = right.copy()
    after[[1, 2, 3]] = False
    turned = MeanPieces(tuple(range(199, -1, -1)), after[::-1].astype(float) * 100)
    percent = MeanPieces(tuple(range(200)), right.astype(float) * 100)
    found = paired_interval(percent, turned, Goal(absolute=1.0))
    share = paired_interval(pieces(right), pieces(after), Goal(relative=0.01))
    assert found is not None and share is not None
    low, high = drop_bounds(3, 0, 200)
    assert (found.low, found.high) == (pytest.approx(100 * low), pytest.approx(100 * high))
    assert share.high == pytest.approx(high / right.mean())


def test_errors_are_answers_too() -> None:
    wrong = np.zeros(100)
    more = wrong.copy()
    more[:4] = 1.0
    found = paired_interval(pieces(wrong), pieces(more), Goal(absolute=0.1, higher_is_better=False))
    assert found is not None
    assert (found.low, found.high) == drop_bounds(4, 0, 100) and found.low < 0.04 < found.high


@pytest.mark.parametrize("same", [np.linspace(0.2, 0.9, 50), np.full(50, 0.5), np.zeros(50)])
def test_no_interval_is_a_point(same: np.ndarray) -> None:
    found = paired_interval(pieces(same), pieces(same), Goal(absolute=0.01))
    assert found is not None and found.low < 0 < found.high


@pytest.mark.parametrize("spread", [0.02, 0.2])
def test_resampled_bounds_cover(spread: float) -> None:
    """Scores that are no answers: 120 draws of 120 samples, whose true drop is known."""
    random = np.random.default_rng(5)
    goal, truth, beyond = Goal(absolute=0.01), 0.02, [0, 0]
    for seed in range(120):
        before = random.uniform(0.3, 1.0, 120)
        after = before - truth + spread * random.standard_normal(120)
        found = paired_interval(pieces(before), pieces(after), goal, seed, draws=100)
        assert found is not None and found.draws == 100
        beyond[0] += found.low > truth
        beyond[1] += found.high < truth
    # 5 % each, and what chance may add to that in 120 draws.
    assert max(beyond) <= 15


def test_samples_that_would_decide() -> None:
    assert samples_to_decide(0, 0, 100, 0.01) == pytest.approx(299, abs=3)
    needed = samples_to_decide(2, 1, 100, 0.03)
    assert needed is not None and needed <= 1000
    low, high = drop_bounds(round(0.02 * needed), round(0.01 * needed), needed)
    assert high <= 0.03 or low > 0.03
    assert samples_to_decide(2, 1, 100, 0.02) is None  # more than ten times as many
    assert samples_to_decide(1, 0, 100, 0.01) is None  # the drop is the bar itself
    assert samples_to_decide(0, 0, 100, 0.0) is None  # no agreement proves that nothing is lost


def test_what_an_interval_says() -> None:
    assert Interval(-0.1, 0.01, 50).holds(0.01) is True
    assert Interval(0.02, 0.03, 50).holds(0.01) is False
    assert Interval(0.0, 0.03, 50).holds(0.01) is None
