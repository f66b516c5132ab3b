"""Goals, objectives, and the trials that no other beats."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from lpot.core.errors import ConfigError, EvaluationError
from lpot.core.goal import Goal, Objectives
from lpot.core.model import Model
from lpot.core.results.result import Result
from lpot.core.trial import Score, State, Trial
from strategy.stage import space

GOAL = Goal(relative=0.01)
FP32 = Score(0.9, latency=0.010, size=4000, memory=100)


def cost(score: Score, *words: str) -> float:
    return Objectives(words, (1.0,) * len(words)).cost(score, FP32, GOAL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("higher", "baseline", "accuracy"), [(True, 0.1 + 0.2, 0.2), (False, 0.7, 0.8)]
)
def test_on_the_bar_is_enough(higher: bool, baseline: float, accuracy: float) -> None:
    """0.1 + 0.2 - 0.1 is more than 0.2, and 0.7 + 0.1 less than 0.8, by the last bit."""
    goal = Goal(absolute=0.1, higher_is_better=higher)
    assert goal.is_met(accuracy, baseline)
    assert not goal.is_met(accuracy - 1e-6 if higher else accuracy + 1e-6, baseline)


def test_a_share_of_nothing_is_no_bar() -> None:
    Goal(absolute=0.1).check_baseline(0.0)
    with pytest.raises(EvaluationError, match="a relative bar is meaningless then"):
        GOAL.check_baseline(0.0)


def test_each_objective_wants_its_own() -> None:
    fast = Score(0.8, latency=0.002, size=9000, memory=900)
    small = Score(0.9, latency=0.009, size=1000, memory=200)
    assert cost(fast, "performance") < cost(small, "performance")
    assert cost(small, "modelsize") < cost(fast, "modelsize")
    assert cost(small, "footprint") < cost(fast, "footprint")
    assert cost(small, "accuracy") < cost(fast, "accuracy")
    assert cost(Score(0.9), "performance") == math.inf


def test_accuracy_goes_by_the_goals_direction() -> None:
    lower = Goal(relative=0.01, higher_is_better=False)
    aim = Objectives(("accuracy",))
    assert aim.cost(Score(1.0), FP32, lower) < aim.cost(Score(2.0), FP32, lower)


def test_several_are_shares_of_fp32() -> None:
    half = Score(0.9, latency=0.005, size=4000)
    quarter = Score(0.9, latency=0.010, size=1000)
    equal = Objectives(("performance", "modelsize"), (1.0, 1.0))
    speed = Objectives(("performance", "modelsize"), (4.0, 1.0))
    assert equal.cost(half, FP32, GOAL) == pytest.approx(1.5)
    assert equal.cost(quarter, FP32, GOAL) < equal.cost(half, FP32, GOAL)
    assert speed.cost(half, FP32, GOAL) < speed.cost(quarter, FP32, GOAL)


@pytest.mark.parametrize(
    ("words", "new", "old", "alike"),
    [
        (("performance",), 1.0, 1.1, True),
        (("performance",), 1.0, 2.0, False),
        (("performance",), math.inf, math.inf, True),
        (("performance",), 1.0, math.inf, False),
        (("modelsize",), 1.0, 1.1, False),
        (("accuracy",), -0.9, -0.9, True),
    ],
)
def test_only_time_is_uncertain(words: tuple, new: float, old: float, alike: bool) -> None:
    assert Objectives(words).alike(new, old) is alike


def test_as_many_weights_as_objectives() -> None:
    with pytest.raises(ValueError, match="as many weights"):
        Objectives(("performance", "accuracy"), (1.0,))


class _Nothing(Model):
    native = input_names = None  # type: ignore[assignment]
    nbytes = 0  # type: ignore[assignment]

    def fingerprint(self) -> str:
        return ""


def result(*scores: Score, goal: Goal = GOAL) -> Result:
    recipe = space(1).default()
    trials = tuple(Trial(n, recipe, State.DONE, score) for n, score in enumerate(scores, 1))
    return Result(_Nothing(), recipe, goal, trials=trials)


def test_pareto_keeps_what_nothing_beats() -> None:
    found = result(
        Score(0.90, latency=3.0),
        Score(0.80, latency=1.0),
        Score(0.85, latency=2.0),
        Score(0.84, latency=2.5),  # beaten by the third
        Score(0.95),  # not measured
        Score(0.99, latency=0.5, bounds=(0.0, 0.99)),  # raced out: its accuracy is not known
    )
    assert [trial.number for trial in found.pareto] == [2, 3, 1]
    assert found.to_json()["pareto"] == [2, 3, 1]


def test_pareto_where_lower_is_better() -> None:
    lower = Goal(relative=0.01, higher_is_better=False)
    found = result(
        Score(2.0, latency=1.0), Score(1.0, latency=2.0), Score(3.0, latency=3.0), goal=lower
    )
    assert [trial.number for trial in found.pareto] == [1, 2]


def test_multi_objectives_from_yaml() -> None:
    from lpot.config.load import load
    from lpot.config.rules import objectives

    several = {"objective": ["performance", "modelsize"], "weight": [0.7, 0.3]}
    assert objectives(load({"tuning": {"multi_objectives": several}})) == Objectives(
        ("performance", "modelsize"), (0.7, 0.3)
    )
    assert objectives(load({"tuning": {"objective": "footprint"}})).words == ("footprint",)
    wrong = {**several, "higher_is_better": [True, False]}
    with pytest.raises(ConfigError, match="performance, which is better low"):
        objectives(load({"tuning": {"multi_objectives": wrong}}))


def test_noise_of_the_evaluation_is_told(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    from lpot.jobs.tune.api import tune
    from search.tear import MENDED

    torn, calls = MENDED["perceptron"](0), []

    def noisy(model: object) -> float:
        assert ort
        calls.append(model)
        return 0.9 + 0.02 * (len(calls) % 2)

    options = {"tuning": {"accuracy_criterion": {"relative": 0.01, "baseline_runs": 3}}}
    found = tune(
        torn.model,
        torn.batches,
        noisy,
        config=options,
        workspace=tmp_path,
        measure_speed=False,
    )
    assert any("too noisy" in note for note in found.notes)
    assert found.baseline is not None and found.baseline.accuracy == pytest.approx(0.9133, abs=1e-4)
