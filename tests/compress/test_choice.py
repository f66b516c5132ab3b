"""Which cuts are chosen for the latency that is to be saved."""

from __future__ import annotations

import math

from lpot.core.compress.choice import Cut, choose, exchanged, saving


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
    assert exchanged(((small, block), 0.4), 0.3, [small, block], _sum, _saved) == ((block,), 0.3)
    # With less than was asked for there is nothing to give back.
    short = ((small,), 0.1)
    assert exchanged(short, 0.3, [small, block], _sum, _saved) == short
    assert exchanged(((), 0.0), 0.3, [small, block], _sum, _saved) == ((), 0.0)


def test_a_cut_is_exchanged_for_milder_ones_elsewhere() -> None:
    hard, mild = Cut("a", 1.0, 0.4, 0.3, True), Cut("a.conv", 0.5, 0.05, 0.2)
    other = Cut("b", 0.5, 0.1, 0.12)
    found, gain = exchanged(((hard,), 0.3), 0.3, [hard, mild, other], _sum, _saved)
    assert {cut.target for cut in found} == {"a.conv", "b"}
    assert round(gain, 6) == 0.32


def test_what_saves_too_little_as_a_whole_or_is_no_better_together_is_not_taken() -> None:
    hard, mild = Cut("a", 1.0, 0.4, 0.3, True), Cut("a", 0.5, 0.1, 0.28, True)
    other = Cut("b", 0.5, 0.05, 0.1)
    cuts, start = [hard, mild, other], ((hard,), 0.3)
    slow = exchanged(start, 0.3, cuts, _sum, lambda tried: 0.3 if tried == (hard,) else 0.2)
    assert slow == start
    bad = exchanged(start, 0.3, cuts, lambda tried: 0.4 if tried == (hard,) else 0.9, _saved)
    assert bad == start
