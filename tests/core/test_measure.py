"""Timing, taking turns and telling two things apart."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from lpot.core.measure import (
    ROUNDS,
    Comparison,
    Timing,
    _rank_interval,
    compare,
    latency,
    rounds_needed,
    turns,
)


def clock(step: float = 0.5):
    ticks = itertools.count()
    return lambda: next(ticks) * step


def noisy(random, median, busy=0.0, bias=0.0, rounds=ROUNDS):
    """Rounds as a machine gives them: a little noise, and some rounds disturbed throughout."""
    level = median * math.exp(random.normal(0, bias))
    made = []
    for _ in range(rounds):
        disturbed = random.uniform(1.2, 2.5) if random.random() < busy else 1.0
        made.append((level * disturbed * np.exp(random.normal(0, 0.02, 5))).tolist())
    return made


def test_latency_warms_up_and_counts():
    calls = []
    timing = latency(lambda: calls.append(1), warmup=2, iteration=5, clock=clock())
    assert len(calls) == 7
    assert timing.samples == (0.5,) * 5


def test_latency_by_seconds_stops_in_time_but_not_before_the_minimum():
    assert len(latency(lambda: None, warmup=0, seconds=10, clock=clock()).samples) == 10
    assert len(latency(lambda: None, warmup=0, seconds=0, minimum=4, clock=clock()).samples) == 4


@pytest.mark.parametrize(("warmup", "iteration"), [(-1, 1), (0, 0), (0, -3)])
def test_latency_refuses_nonsense(warmup, iteration):
    with pytest.raises(ValueError, match=r"warmup|iteration"):
        latency(lambda: None, warmup=warmup, iteration=iteration)


def test_latency_lets_the_callers_error_through():
    def broken():
        raise RuntimeError("kernel")

    with pytest.raises(RuntimeError, match="kernel"):
        latency(broken)


def test_timing_figures():
    timing = Timing((tuple(range(1, 51)), tuple(range(51, 102))), batch_size=8)
    assert timing.median == 51
    assert timing.spread == 50
    assert timing.minimum == 1
    assert timing.percentile(90) == 91
    assert timing.throughput == pytest.approx(8 / 51)
    assert timing.round_medians == (25.5, 76)
    raw = json.loads(json.dumps(timing.to_json()))
    assert (raw["p50"], raw["p90"], raw["p99"], raw["count"]) == (51, 91, 100, 101)


def test_timing_is_a_value():
    assert Timing(((1.0, 2.0),)) == Timing(((1.0, 2.0),))
    with pytest.raises(ValueError, match="at least one"):
        Timing(())
    with pytest.raises(ValueError, match="at least one"):
        Timing(((1.0,), ()))


def test_turns_are_fair():
    order = list(turns(3, 4))
    assert order == [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]
    # A machine that slows down steadily costs each the same.
    cost = [sum(place for place, who in enumerate(order) if who == one) for one in range(3)]
    assert len(set(cost)) == 1


@pytest.mark.parametrize("count", range(3, 11))
def test_rank_interval_is_the_signed_rank_distribution(count):
    """Against all 2**n ways to toss the signs."""
    ranks = np.arange(1, count + 1)
    sums = [int(np.dot(signs, ranks)) for signs in itertools.product((0, 1), repeat=count)]
    confidence = 1 - 2.5 / 2**count * 2
    skip, reached = _rank_interval(count, confidence)
    outside = [2 * sum(total <= bound for total in sums) / 2**count for bound in (skip, skip + 1)]
    assert reached == pytest.approx(1 - outside[0])
    assert outside[0] <= 1 - confidence < outside[1]


def test_rounds_needed_can_carry_a_verdict():
    for confidence in (0.9, 0.95, 0.99, 0.999):
        needed = rounds_needed(confidence)
        skip, reached = _rank_interval(needed, confidence)
        assert skip >= 0 and reached >= confidence
        assert _rank_interval(needed - 1, confidence)[0] < 0
    with pytest.raises(ValueError, match="between"):
        rounds_needed(1.0)


def test_compare_calls_both_ways():
    slow, fast = [[2.0, 2.2, 2.1]] * 8, [[1.0, 1.1, 1.05]] * 8
    found = compare(slow, fast)
    assert found == Comparison(found.ratio, found.low, found.high, "faster", found.confidence)
    assert found.ratio == pytest.approx(2)
    assert compare(fast, slow).verdict == "slower"
    assert compare(fast, slow).ratio == pytest.approx(1 / found.ratio)
    assert found.significant and found.confidence >= 0.99
    assert json.loads(json.dumps(found.to_json()))["verdict"] == "faster"
    assert str(found).startswith("faster (2.00x [")


def test_a_sure_but_tiny_difference_is_none():
    assert compare([[1.02]] * 15, [[1.0]] * 15).verdict == "no significant difference"
    assert compare([[1.04]] * 15, [[1.0]] * 15).verdict == "faster"


def test_one_lucky_round_decides_nothing():
    first = [[1.0]] * 14 + [[9.0]]
    assert compare(first, [[1.0]] * 15).verdict == "no significant difference"


@pytest.mark.parametrize(
    ("first", "other", "word"),
    [
        ([[1.0]] * 8, [[1.0]] * 9, "pairs"),
        ([[1.0]] * 7, [[1.0]] * 7, "at least 8"),
        ([[0.0]] * 8, [[1.0]] * 8, "too short"),
    ],
)
def test_compare_refuses_what_it_cannot_judge(first, other, word):
    with pytest.raises(ValueError, match=word):
        compare(first, other)


@pytest.mark.parametrize("busy", [0.0, 0.25])
def test_a_model_against_itself_is_no_difference(busy):
    """1 % of false alarms are promised, whatever the share of disturbed rounds."""
    random = np.random.default_rng(7)
    verdicts = [
        compare(noisy(random, 1, busy, 0.01), noisy(random, 1, busy)).significant
        for _ in range(400)
    ]
    assert sum(verdicts) <= 12


@pytest.mark.parametrize(
    ("ratio", "busy", "least"), [(1.8, 0.0, 400), (1.1, 0.0, 395), (1.8, 0.2, 385)]
)
def test_a_real_difference_is_found(ratio, busy, least):
    random = np.random.default_rng(8)
    found = [
        compare(noisy(random, ratio, busy, 0.01), noisy(random, 1, busy)).verdict
        for _ in range(400)
    ]
    assert found.count("faster") >= least
    assert "slower" not in found


def test_the_interval_covers_the_truth():
    random = np.random.default_rng(9)
    inside = 0
    for _ in range(300):
        found = compare(noisy(random, 1.3, 0.2), noisy(random, 1, 0.2), confidence=0.95)
        inside += found.low <= 1.3 <= found.high
    assert inside >= 277  # 95 % of 300, less two standard deviations
