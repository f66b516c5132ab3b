"""Which cuts are chosen for the latency that is to be saved."""

from __future__ import annotations

import itertools
import math
import random
from types import SimpleNamespace
from typing import Any

from lpot.core.compress.choice import Cut, Saving, alternatives, choose, ranked, saving
from lpot.core.progress import Listener
from lpot.jobs.compress.job import planned


def test_cuts_are_chosen_by_error_for_the_time_they_save() -> None:
    cheap, dear = Cut("a", 0.5, 0.1, 0.2), Cut("b", 0.5, 0.4, 0.2)
    ruin, slow = Cut("c", 1.0, 1.5, 0.9, block=True), Cut("d", 0.5, 0.0, -0.1)
    assert choose([dear, ruin, slow, cheap], 0.1) == (cheap,)
    assert choose([dear, ruin, slow, cheap], 0.9) == (cheap, dear)
    inside = Cut("blocks.1.conv", 0.5, 0.1, 0.05)
    whole = Cut("blocks.1", 1.0, 0.3, 0.2, block=True)
    assert choose([inside, whole], 0.05) == (whole,)  # cheaper for what it saves
    assert choose([inside, whole], 0.3) == (whole,)


def test_cuts_are_chosen_by_their_error_together() -> None:
    """Two blocks that stand in for each other are cheap alone, but not both."""
    cuts = [
        Cut(name, 1.0, error, 0.2, True) for name, error in (("a", 0.1), ("b", 0.11), ("c", 0.2))
    ]

    def together(tried: tuple[Cut, ...]) -> float:
        return 0.9 if {"a", "b"} <= {cut.target for cut in tried} else 0.3

    assert [cut.target for cut in choose(cuts, 0.4)] == ["a", "b"]
    assert [cut.target for cut in choose(cuts, 0.4, together)] == ["a", "c"]
    # More than there is: all of them.
    assert len(choose(cuts, 0.9, together)) == 3


def test_more_or_less_is_cut_until_the_whole_saves_what_was_asked_for() -> None:
    cuts = [Cut(f"b{index}", 1.0, 0.1, 0.1, True) for index in range(8)]

    def pick(wanted: float) -> tuple[Cut, ...]:
        return tuple(cuts[: min(8, math.ceil(round(wanted / 0.1, 6)))])

    def found(ratio: float, each: float) -> tuple[int, float]:
        chosen, gain = saving(ratio, pick, lambda tried: each * len(tried))
        return len(chosen), round(gain, 6)

    assert found(0.3, 0.1) == (3, 0.3)
    assert found(0.3, 0.05) == (6, 0.3)  # together they save half of what each promised
    assert found(0.3, 0.2) == (2, 0.4)  # twice: fewer do
    assert found(0.3, 0.0995) == (3, 0.2985)  # nearly is enough
    assert found(0.9, 0.1) == (8, 0.8)  # all there is
    assert saving(0.3, lambda wanted: (), lambda tried: 0.0) == ((), 0.0)


def test_a_block_takes_what_was_chosen_inside_with_it() -> None:
    inner, outer = Cut("top.conv", 0.5, 0.1, 0.2), Cut("top", 1.0, 0.4, 0.3, True)
    assert choose([inner, outer], 0.1) == (inner,)
    assert choose([inner, outer], 0.25) == (outer,)
    assert choose([inner, Cut("top.conv", 0.75, 0.3, 0.25)], 0.22)[0].share == 0.75


def _sum(cuts: tuple[Cut, ...]) -> float:
    return sum(cut.error for cut in cuts)


def _saved(cuts: tuple[Cut, ...]) -> float:
    return sum(cut.gain for cut in cuts)


def test_a_cut_goes_back_where_the_others_save_enough() -> None:
    """The cheap first steps of a greedy choice are not needed once a block went."""
    small, block = Cut("a.conv", 0.5, 0.05, 0.1), Cut("b", 1.0, 0.2, 0.3, True)
    found = ranked(((small, block), 0.4), 0.3, [small, block], _sum, _saved)
    assert found == [((block,), 0.3), ((small, block), 0.4)]  # the milder one first
    # With less than was asked for there is nothing to give back.
    short = ((small,), 0.1)
    assert ranked(short, 0.3, [small, block], _sum, _saved) == [short]
    assert ranked(((), 0.0), 0.3, [small, block], _sum, _saved) == [((), 0.0)]


def test_several_cuts_are_exchanged_for_others_at_once() -> None:
    hard, mild = Cut("a", 1.0, 0.4, 0.3, True), Cut("a.conv", 0.5, 0.05, 0.2)
    other = Cut("b", 0.5, 0.1, 0.12)
    (found, gain), *_ = ranked(((hard,), 0.3), 0.3, [hard, mild, other], _sum, _saved)
    assert {cut.target for cut in found} == {"a.conv", "b"}
    assert round(gain, 6) == 0.32


def test_what_saves_too_little_as_a_whole_or_is_no_better_together_is_not_taken() -> None:
    hard, mild = Cut("a", 1.0, 0.4, 0.3, True), Cut("a", 0.5, 0.1, 0.295, True)
    cuts, start = [hard, mild], ((hard,), 0.3)
    slow = ranked(start, 0.3, cuts, _sum, lambda tried: 0.3 if tried == (hard,) else 0.2)
    assert slow == [start]
    bad = ranked(start, 0.3, cuts, lambda tried: 0.4 if tried == (hard,) else 0.9, _saved)
    assert bad == [start, ((mild,), 0.295)]


def test_a_set_that_seemed_fast_once_is_not_taken() -> None:
    hard, mild = Cut("a", 1.0, 0.4, 0.3, True), Cut("b", 1.0, 0.1, 0.3, True)
    seen: list[tuple[Cut, ...]] = []

    def timed(tried: tuple[Cut, ...]) -> float:
        seen.append(tried)
        return 0.3 if tried == (hard,) or seen.count(tried) == 1 else 0.2

    found = ranked(((hard,), 0.3), 0.3, [hard, mild], _sum, timed)
    assert found == [((hard,), 0.3)] and (mild,) in seen


def test_the_search_for_sets_is_as_good_as_trying_all() -> None:
    draw, gains = random.Random(0), (-0.01, 0.05, 0.06, 0.08, 0.1)  # four are enough
    for _ in range(20):
        cuts = [
            Cut(f"{place}{inner}", share, draw.uniform(0, 0.3), draw.choice(gains), not inner)
            for place in "abcd"
            for inner in ("", ".x", ".y")
            for share in (0.5, 1.0)
        ]
        found = alternatives(cuts, 0.2, 5)
        every = [
            tuple(sorted(chosen))
            for size in range(1, 5)
            for chosen in itertools.combinations(cuts, size)
            if _saved(chosen) >= 0.2 and _apart(chosen) and all(cut.gain > 0 for cut in chosen)
        ]
        assert found[0] == min(every, key=lambda some: sum(-math.log1p(-c.error) for c in some))
        assert len(set(found)) == len(found) == 5 and set(found) <= set(every)


def _apart(chosen: tuple[Cut, ...]) -> bool:
    """Each target once, and no block with what is inside of it."""
    names = [cut.target for cut in chosen]
    return len(set(names)) == len(names) and not any(name[0] in names for name in names if name[1:])


def test_of_hundreds_of_cuts_some_sets_are_found_soon() -> None:
    cuts = [
        Cut(f"g{place}", share, share * 0.01, share * 0.01)
        for place in range(60)
        for share in (0.25, 0.5, 0.75)
    ]
    found = alternatives(cuts, 0.3, 16)
    assert len(found) == 16 and all(_saved(some) >= 0.3 for some in found)


class Judged:
    """Cuts with the error after their fit, and after a short training."""

    def __init__(self, *cuts: tuple[str, float, float]) -> None:
        self.found = [
            (tuple(Cut(name, 0.5, 0.1, 0.3) for name in names.split("+")), 0.3)
            for names, _, _ in cuts
        ]
        self._before = {name: error for name, error, _ in cuts}
        self._after = {name: error for name, _, error in cuts}
        self.bench = SimpleNamespace(listener=Listener())

    def cheapest(self, ratio: float) -> list[Saving]:
        return self.found

    def together(self, cuts: tuple[Cut, ...]) -> float:
        return self._before[_names(cuts)]

    def fitted(self, cuts: tuple[Cut, ...]) -> str:
        return _names(cuts)

    def low_error(self, model: str) -> float:
        return self._after[model]

    def plan(self, cuts: tuple[Cut, ...], gain: float) -> str:
        return _names(cuts)


def _names(cuts: tuple[Cut, ...]) -> str:
    return "+".join(cut.target for cut in cuts)


def test_cuts_that_are_close_after_the_fit_are_compared_after_a_short_training() -> None:
    trained: list[Any] = []

    def train(model: Any) -> Any:
        trained.append(model)
        return model

    judged: Any = Judged(("layer", 0.2, 0.1), ("block", 0.21, 0.08), ("far", 0.5, 0.01))
    assert planned(judged, 0.3, train) == "block"
    assert trained == ["layer", "block"]  # what is far off costs no training
    assert planned(judged, 0.3) == "layer"  # too few epochs for a thirtieth of them
    one: Any = Judged(("layer", 0.2, 0.1))
    assert planned(one, 0.3, train) == "layer" and len(trained) == 2


def test_of_many_sets_those_with_the_fewest_cuts_are_compared() -> None:
    many = [(f"a{number}+b", 0.2 + number / 1000, 0.1) for number in range(5)]
    judged: Any = Judged(*many, ("whole", 0.21, 0.05))
    assert planned(judged, 0.3, lambda model: model) == "whole"
