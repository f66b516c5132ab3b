"""bayesian and tpe: seeded, replayable, without repeats, with a way back for every op."""

from __future__ import annotations

import sys

import pytest

from lpot.core.errors import ConfigError
from lpot.core.goal import Goal
from lpot.core.recipe import FP32, Recipe
from lpot.core.strategy import StrategyContext
from lpot.core.trial import Score, State, Trial
from lpot.strategy import get_strategy
from lpot.strategy.ask_tell import value
from strategy.stage import INT8, KL, drive, needs, space, trials

optuna = pytest.importorskip("optuna")
NAMES = ["bayesian", "tpe"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "bayesian":
        pytest.importorskip("scipy")
    return str(request.param)


def test_same_seed_same_recipes(name: str) -> None:
    where = space(5, INT8, KL, FP32)
    one, two, other = (
        drive(get_strategy(name), where, lambda r: False, limit=14, seed=seed) for seed in (1, 1, 2)
    )
    assert one == two
    assert one != other
    assert one[0] == where.default()


def test_never_evaluates_twice_and_ends(name: str) -> None:
    seen = drive(get_strategy(name), space(2), lambda recipe: False, limit=50)
    assert len({recipe.digest for recipe in seen}) == len(seen) <= 4


def test_can_go_back_to_float(name: str) -> None:
    seen = trials(get_strategy(name), space(4), needs({1}), limit=40)
    assert any(trial.met for trial in seen)


def test_sampling_sizes_are_a_dimension(name: str) -> None:
    where = space(1, samples=(10, 20))
    seen = drive(get_strategy(name), where, lambda recipe: False, limit=20)
    assert {recipe.samples for recipe in seen} == {10, 20}


def test_failed_trials_do_not_end_it(name: str) -> None:
    proposals = get_strategy(name)(space(3), StrategyContext(baseline=1.0))
    (recipe,) = next(proposals)
    for number in range(1, 4):
        (recipe,) = proposals.send([Trial.failed(number, recipe, RuntimeError("no kernel"), 0.1)])


def test_value_prefers_what_holds_and_then_what_is_low() -> None:
    context = StrategyContext(goal=Goal(relative=0.01), baseline=1.0)
    low, mixed = (
        space(2).default(),
        space(2).with_float(space(2).default(), [*space(2).choices][:1]),
    )

    def score(recipe: Recipe, accuracy: float) -> float:
        met = context.goal.is_met(accuracy, 1.0)
        return value(Trial(1, recipe, State.DONE, Score(accuracy), met), context)

    assert score(low, 1.0) > score(mixed, 1.0) > score(low, 0.9) > score(low, 0.5)


def test_value_goes_the_right_way_when_lower_is_better() -> None:
    context = StrategyContext(goal=Goal(relative=0.01, higher_is_better=False), baseline=2.0)
    recipe = space(1).default()
    near, far = (
        value(Trial(1, recipe, State.DONE, Score(loss), met=False), context) for loss in (2.1, 3.0)
    )
    assert near > far


def test_without_torch_the_gaussian_process_gives_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = sys.modules["lpot.strategy.bayesian"]  # the name itself is the function
    monkeypatch.setattr(room, "find_spec", lambda package: None)
    assert drive(get_strategy("bayesian"), space(2), lambda recipe: False, limit=3)
    assert "pip install torch" in caplog.text


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_optuna_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match="pip install optuna"):
        drive(get_strategy(name), space(2), lambda recipe: False)
