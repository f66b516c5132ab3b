"""The search over widths: its path against brute force, its cuts fed by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from lpot.core.goal import Goal, Objectives
from lpot.core.recipe import FP32, FP32_TENSOR, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.space import TuningSpace
from lpot.core.strategy import StrategyContext, Tradeoff
from lpot.core.trial import Score, State, Trial
from lpot.strategy.mixed_bits import fair_path, lower_hull, mixed_bits, most, path_of

INT4, INT8 = (
    OpConfig(
        FP32_TENSOR, TensorConfig(f"int{bits}", "sym", "per_group", "rtn", bits, 32), "weight_only"
    )
    for bits in (4, 8)
)


def _tradeoffs(count: int, seed: int = 0) -> dict[OpKey, tuple[Tradeoff, ...]]:
    rng = np.random.default_rng(seed)
    found = {}
    for at in range(count):
        error = float(10 ** rng.uniform(-4, -1))
        weight = float(rng.uniform(0.5, 2)) / count
        found[OpKey(f"op{at:03}", "MatMul")] = (
            Tradeoff(INT4, error, 0.3 * weight, 50),
            Tradeoff(INT8, error / 200, 0.45 * weight, 90),
            Tradeoff(FP32, 0.0, weight, 320),
        )
    return found


def _space(tradeoffs: dict[OpKey, tuple[Tradeoff, ...]]) -> TuningSpace:
    return TuningSpace(
        {key: tuple(o.config for o in options) for key, options in tradeoffs.items()}
    )


def test_each_point_of_the_path_is_the_cheapest_with_that_little_harm() -> None:
    tradeoffs = _tradeoffs(6)
    path = path_of(_space(tradeoffs), tradeoffs)
    whole = 6 * 320

    def cost(option: Tradeoff) -> float:
        return option.time + 0.1 * option.size / whole

    mixes = list(itertools.product(*tradeoffs.values()))
    for error, spent in zip(path.errors, path.costs, strict=True):
        best = min(
            sum(map(cost, mix)) for mix in mixes if sum(o.error for o in mix) <= error + 1e-12
        )
        assert spent == pytest.approx(best, rel=1e-6)
    assert path.recipe(0) == Recipe(dict.fromkeys(tradeoffs, INT4))
    assert path.recipe(len(path.steps)) == Recipe(dict.fromkeys(tradeoffs, FP32))


@pytest.mark.parametrize("factor", (0.5, 1.0, 3.0))
def test_the_search_ends_near_the_cheapest_mix_within_its_bound(factor: float) -> None:
    tradeoffs = _tradeoffs(200)
    where = _space(tradeoffs)
    path = path_of(where, tradeoffs)
    goal = Goal(relative=0.02, higher_is_better=False)
    context = StrategyContext(goal=goal, baseline=30.0, tradeoffs=lambda: tradeoffs)
    error = {(key, o.config): o.error for key, options in tradeoffs.items() for o in options}
    proposals = mixed_bits(where, context)
    batch, held, count = next(proposals), [], 0
    while True:
        (recipe,) = batch
        count += 1
        lost = factor * sum(error[key, config] for key, config in recipe.ops.items())
        score = Score(30.0 * math.exp(lost))
        met = goal.is_met(score.accuracy, 30.0)
        held += [recipe] if met else []
        try:
            batch = proposals.send([Trial(count, recipe, State.DONE, score, met)])
        except StopIteration:
            break
    right = path.first_below(math.log(1.02) / factor)
    assert count <= most(where, False)
    found = path.costs[[path.recipe(at) for at in range(len(path.steps) + 1)].index(held[-1])]
    assert found <= 1.003 * path.costs[right]


def test_a_mix_that_misses_the_bar_on_the_whole_data_does_not_end_the_search() -> None:
    tradeoffs = _tradeoffs(200)
    where = _space(tradeoffs)
    goal = Goal(relative=0.02, higher_is_better=False)
    error = {(key, o.config): o.error for key, options in tradeoffs.items() for o in options}

    def tried(recipe: Recipe, factor: float, raced: bool) -> Trial:
        lost = factor * sum(error[key, config] for key, config in recipe.ops.items())
        score = Score(30.0 * math.exp(lost), bounds=(30.0, 31.0) if raced else None)
        return Trial(1, recipe, State.DONE, score, goal.is_met(score.accuracy, 30.0))

    confirmed: list[Trial] = []

    def confirm(trial: Trial) -> Trial:
        confirmed.append(tried(trial.recipe, 1.2, raced=False))  # a part of the data flatters
        return confirmed[-1]

    context = StrategyContext(
        goal=goal, baseline=30.0, tradeoffs=lambda: tradeoffs, confirm=confirm
    )
    proposals = mixed_bits(where, context)
    batch = next(proposals)
    with pytest.raises(StopIteration):
        while True:
            batch = proposals.send([tried(batch[0], 1.0, raced=True)])
    assert [trial.met for trial in confirmed] == [False, True]
    path = path_of(where, tradeoffs)
    costs = {path.recipe(at): cost for at, cost in enumerate(path.costs)}
    right = path.costs[path.first_below(math.log(1.02) / 1.2)]
    assert costs[confirmed[-1].recipe] <= 1.02 * right


def test_by_size_the_smallest_formats_come_first_and_fp32_itself_is_never_proposed() -> None:
    tradeoffs = _tradeoffs(3)
    where = _space(tradeoffs)
    context = StrategyContext(
        goal=Goal(relative=0.02, higher_is_better=False),
        baseline=30.0,
        objectives=Objectives(("modelsize",)),
        tradeoffs=lambda: tradeoffs,
    )
    proposals = mixed_bits(where, context)
    batch, tried = next(proposals), []
    with pytest.raises(StopIteration):
        while True:
            tried += batch
            trial = Trial(len(tried), batch[0], State.DONE, Score(99.0), False)
            batch = proposals.send([trial])
    assert all(recipe.low_ops for recipe in tried) and len(set(tried)) == len(tried)


def test_formats_that_cost_more_and_harm_more_are_left_out() -> None:
    points = [(5.0, 1.0, INT4), (6.0, 2.0, INT8), (0.0, 3.0, FP32)]
    assert [point[2] for point in lower_hull(points)] == [INT4, FP32]


def _in_phases(prompt_of_int4: float) -> dict[OpKey, tuple[Tradeoff, ...]]:
    """INT4 is the fastest for tokens, and for prompts as slow as given; INT8 is fast in both."""
    share = 1 / 20
    return {
        OpKey(f"op{at:02}", "MatMul"): (
            Tradeoff(INT4, 1e-3, 0.25 * share, 50, (0.25 * share, prompt_of_int4 * share)),
            Tradeoff(INT8, 1e-3, 0.35 * share, 90, (0.35 * share, 0.6 * share)),
            Tradeoff(FP32, 0.0, share, 320, (share, share)),
        )
        for at in range(20)
    }


@pytest.mark.parametrize("slow", (0.8, 0.9, 1.2, 1.6))
def test_no_phase_is_slower_than_in_fp32(slow: float) -> None:
    tradeoffs = _in_phases(slow)
    path = fair_path(_space(tradeoffs), tradeoffs, allowed=0.021)
    chosen = path.recipe(path.first_below(0.021)).ops
    prompt = sum(
        option.phases[1]
        for key in chosen
        for option in tradeoffs[key]
        if option.config == chosen[key]
    )
    assert prompt <= 0.92  # clocks of single ops are not exact
    if slow < 0.92:  # nothing is given up where nothing is too slow
        assert set(chosen.values()) == {INT4}
