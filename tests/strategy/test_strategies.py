"""What holds for every strategy. They are fed trials by hand: no backend, no data."""

from __future__ import annotations

import pytest

from lpot.core.errors import ConfigError
from lpot.core.goal import Goal
from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.strategy import PACKAGES, STRATEGIES, get_strategy
from lpot.strategy.basic import MORE, basic
from strategy.stage import (
    BF16,
    INT8,
    best,
    bound,
    drive,
    needs,
    op,
    sensitivity,
    space,
    trials,
)


class TestTimeout:
    """`timeout: 0` ends a search at its first success, unless it was asked to settle."""

    PASSES = staticmethod(needs({0, 1}))
    RANKING = staticmethod(lambda: {op(i): 0.02 / (i + 1) for i in range(16)})

    def held(self, name: str, **options: object) -> list[bool]:
        where = space(16, INT8, BF16, FP32) if "mixed" in name else space(16)

        def passes(recipe: Recipe) -> bool:
            return all(recipe.ops[op(i)] == FP32 for i in (0, 1))

        return [
            trial.met
            for trial in trials(
                get_strategy(name),
                where,
                passes,
                40,
                None,
                ranking=self.RANKING,
                options=options,
                curvature=self.RANKING,
            )
        ]

    @pytest.mark.parametrize(
        "name",
        sorted({*STRATEGIES} - {"auto", "basic", "mixed_bits", "mse_v2", "conservative", "sigopt"}),
    )
    def test_the_first_success_is_the_last_trial(self, name: str) -> None:
        pytest.importorskip("optuna" if name in PACKAGES else "numpy")
        if name in ("mse", "hawq_v2"):
            pytest.skip("offers its trials as one batch, of which the loop stops")
        assert self.held(name).index(True) == len(self.held(name)) - 1

    def test_basic_makes_two_more_at_most_for_fewer_ops_in_float(self) -> None:
        held, cut = self.held("basic"), self.held("basic", settle=False)
        assert cut == [False, True] and held[:2] == cut and 0 < len(held) - len(cut) <= MORE

    def test_asked_to_settle_it_goes_on(self) -> None:
        first, settled = self.held("basic"), self.held("basic", settle=True)
        assert settled[: len(first)] == first and len(settled) > len(first)

    def test_auto_may_be_asked_not_to(self) -> None:
        assert self.held("auto", settle=False).count(True) == 1 < self.held("auto").count(True)


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in PACKAGES])
def test_an_empty_space_ends(name: str) -> None:
    if "mixed" in name:
        pytest.skip("refuses a space without 16-bit floats")
    assert len(drive(get_strategy(name), TuningSpace({}), lambda recipe: False, limit=10)) <= 2


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_fp32_model_itself_is_no_answer(name: str) -> None:
    """Whatever the strategy: where only FP32 meets the bar, nothing is called a success."""
    pytest.importorskip("optuna" if name in PACKAGES else "numpy")
    follower = OpKey("add", "Add")
    options = (INT8, BF16, FP32) if "mixed" in name else (INT8, FP32)
    choices = {**space(3, *options).choices, follower: (INT8, FP32)}
    where = TuningSpace(choices, followers=frozenset({follower}))

    def passes(recipe: Recipe) -> bool:
        return all(recipe.ops[op(i)] == FP32 for i in range(3))

    seen = drive(
        get_strategy(name),
        where,
        passes,
        60,
        ranking=sensitivity(3, {1}),
        curvature=sensitivity(3, {1}),
    )
    assert seen and not any(map(passes, seen))


@pytest.mark.parametrize("name", ["basic", "auto", "mse_v2"])
def test_lower_is_better(name: str) -> None:
    """Whether the bar holds is the trial's word: the direction must not turn the search round."""
    goal = Goal(relative=0.01, higher_is_better=False)
    seen = drive(get_strategy(name), space(8), needs({3}), ranking=sensitivity(8, {3}), goal=goal)
    assert best(seen, needs({3})) == {"op03"} and len(seen) <= bound(8)


def test_names() -> None:
    assert get_strategy(basic) is basic
    assert get_strategy("sigopt") is basic
    with pytest.raises(ConfigError, match="did you mean 'basic'"):
        get_strategy("basik")


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_missing_package_is_named_before_anything_is_evaluated(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpot.strategy.find_spec", lambda package: None)
    with pytest.raises(ConfigError, match="pip install optuna"):
        get_strategy(name)
