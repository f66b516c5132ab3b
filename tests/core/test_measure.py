"""Timing, taking turns and telling two things apart."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

from lpot.core.load import QUIET, Counters, Load, Meter
from lpot.core.measure import (
    ROUNDS,
    Comparison,
    Timing,
    _rank_interval,
    compare,
    compare_timings,
    latency,
    rounds_needed,
    take_turns,
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


# -- how busy the machine was


def counters(*values):
    """A machine whose counters are known: (wall, cpu, waited, busy) at each look."""
    looks = iter(Counters(*one) for one in values)
    return lambda: next(looks)


@pytest.mark.parametrize(
    ("after", "taken"),
    [
        ((1.0, 2.0, 0.0, 2.0), 0.0),  # two threads, alone
        ((1.0, 1.0, 0.5, 1.0), 0.0),  # its own threads were in each other's way
        ((1.0, 1.0, 0.0, 2.0), 0.0),  # others were busy on the core that it did not need
        ((1.0, 1.0, 1.0, 2.0), 0.5),  # two threads, and others had half of what these wanted
        ((1.0, 0.01, 0.05, 2.0), 0.05),  # it mostly slept: little was taken from little
        ((1.0, 1.0, 1.0, None), 0.5),  # a system that does not tell what others do
    ],
)
def test_what_others_took_is_known_from_what_was_waited_for(after, taken):
    meter = Meter(counters((0.0, 0.0, 0.0, None if after[3] is None else 0.0), after))
    assert meter.read().taken == pytest.approx(taken)


def test_a_machine_that_tells_nothing_is_taken_for_quiet(monkeypatch, tmp_path):
    monkeypatch.setattr("lpot.core.load.PROC", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "resource", None)  # as on Windows
    timing = latency(lambda: sum(range(1000)), warmup=0, iteration=3)
    assert timing.disturbed == 0 and timing.loads[0].calls == 3


def loaded(taken, seconds=1.0, work=1.0):
    """One turn: by the clock, in CPU time, and with so much of the machine gone to others."""
    return Timing(((seconds,),), loads=(Load(1.0, work, work * taken / (1 - taken), 2.0),))


def taken_in_turns(pairs):
    """The rounds kept of what two contestants do turn by turn, and how many turns that took."""
    kept, count = ([], []), [0, 0]

    def run(who):
        made = pairs[who](count[who])
        count[who] += 1
        kept[who].append(made)
        return made.loads[0]

    def settle(who, at, better):
        latest = kept[who].pop()
        kept[who][at] = latest if better else kept[who][at]

    take_turns(2, 8, run, settle)
    both = [
        Timing(tuple(t.samples for t in rounds), loads=tuple(t.loads[0] for t in rounds))
        for rounds in kept
    ]
    return both, count


def test_a_disturbed_round_is_repeated_until_it_was_quiet():
    def turn(seconds):
        return lambda at: loaded(0.6, 9 * seconds) if at in (2, 5, 8) else loaded(0.0, seconds)

    both, count = taken_in_turns([turn(2.0), turn(1.0)])
    assert count == [11, 11]  # the repeat of round 2 was disturbed as well
    found = compare_timings(*both)
    assert found.ratio == pytest.approx(2.0) and not found.busy
    assert all(load.taken <= QUIET for timing in both for load in timing.loads)


def test_where_no_quiet_is_to_be_had_cpu_time_is_compared_and_it_is_said():
    """By the clock 22 times as fast, for one of them waits more: the work says 3."""
    both, count = taken_in_turns(
        [lambda at: loaded(0.6, 22.0, work=3.0), lambda at: loaded(0.5, 1.0, work=1.0)]
    )
    assert count == [12, 12]  # bounded
    found = compare_timings(*both)
    assert found.busy and found.taken == pytest.approx(0.6)
    assert found.ratio == pytest.approx(3.0) and "the machine was busy" in str(found)
    assert found.to_json()["busy"] is True


def test_a_few_disturbed_rounds_are_what_medians_are_for():
    rounds = [loaded(0.5 if at < 2 else 0.0) for at in range(8)]
    timing = Timing(((1.0,),) * 8, loads=tuple(one.loads[0] for one in rounds))
    assert timing.disturbed == 0.25 and not compare_timings(timing, timing).busy
