"""Bars that say nothing, metrics that go the other way, time that runs out, trials counted."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

import lpot
import onnx_models
from lpot.core.errors import ConfigError, EvaluationError
from lpot.core.goal import Goal
from lpot.core.limits import Limits, Watch

SOURCE = Path(lpot.__file__).parent


class Scores:
    """An eval_func that gives these scores, the last one for ever."""

    def __init__(self, *scores: float, clock: Any = None, seconds: float = 0.0) -> None:
        self.scores = scores
        self.clock = clock
        self.seconds = seconds  # that each takes by the clock
        self.calls = 0

    def __call__(self, model: Any) -> float:
        self.calls += 1
        if self.clock is not None:
            self.clock.now += self.seconds
        return self.scores[min(self.calls, len(self.scores)) - 1]


def test_a_baseline_of_zero_with_a_relative_bar_is_refused(tune: Any) -> None:
    scores = Scores(0.0, 0.0)
    with pytest.raises(EvaluationError, match="absolute"):
        tune(evaluate=scores, goal=0.01)
    assert scores.calls == 1


def test_a_baseline_of_zero_with_an_absolute_bar_is_fine(tune: Any) -> None:
    assert tune(evaluate=Scores(0.0, -0.01), goal=Goal(absolute=0.02)).met is True
    assert tune(evaluate=Scores(0.0, -0.03), goal=Goal(absolute=0.02), new_run=True).met is False


@pytest.mark.parametrize(
    ("baseline", "score", "higher_is_better", "met"),
    [
        (-10.0, -10.05, True, True),
        (-10.0, -10.2, True, False),
        (-10.0, -9.0, True, True),
        (2.0, 2.01, False, True),
        (2.0, 2.1, False, False),
        (2.0, 1.0, False, True),
        (-2.0, -1.99, False, True),
        (-2.0, -1.9, False, False),
    ],
)
def test_negative_and_lower_is_better(
    tune: Any, baseline: float, score: float, higher_is_better: bool, met: bool
) -> None:
    goal = Goal(relative=0.01, higher_is_better=higher_is_better)
    result = tune(evaluate=Scores(baseline, score), goal=goal, really=True)
    assert result.met is met


@pytest.mark.parametrize("strategy", ["basic", "random", "exhaustive"])
def test_the_best_of_what_misses_the_bar_is_the_lowest_loss(tune: Any, strategy: str) -> None:
    scores = Scores(1.0, 5.0, 3.0, 2.0, 4.0, 6.0)
    goal = Goal(relative=0.01, higher_is_better=False)
    model = onnx_models.mlp(layers=6)
    result = tune(model, evaluate=scores, goal=goal, strategy=strategy, max_trials=5)
    assert result.met is False
    assert result.accuracy == min(trial.accuracy for trial in result.trials)
    assert any("the bar of 1.01 was not reached" in note for note in result.notes)
    assert result.path is not None and result.path.is_file()  # saved all the same


def test_timeout_in_the_middle_of_a_trial_lets_it_end_and_starts_no_other(
    tune: Any, clock: Any
) -> None:
    calls = []

    def judge(model: Any) -> float:
        calls.append(model)
        if len(calls) == 1:
            return 1.0
        clock.now += 2.0
        return 0.5

    model = onnx_models.mlp(layers=6)
    result = tune(model, evaluate=judge, strategy="random", timeout=1.8, max_trials=50)
    assert result.stopped == "timeout of 1.8 s reached"
    assert len(calls) == 2
    assert result.accuracy == 0.5  # what was done counts
    assert result.met is False


def test_timeout_before_any_trial_hands_back_a_model_nobody_evaluated(
    tune: Any, clock: Any
) -> None:
    result = tune(evaluate=Scores(1.0, clock=clock, seconds=0.2), timeout=0.1)
    assert result.trials == ()
    assert result.met is None and result.recipe.low_ops and result.path.is_file()
    assert "not evaluated: timeout" in repr(result)
    assert any("before a trial could be evaluated" in note for note in result.notes)


def test_timeout_goes_on_after_the_first_success_and_zero_does_not(tune: Any) -> None:
    model = onnx_models.mlp(layers=6)
    options: dict[str, Any] = {"strategy": "random", "max_trials": 4}
    assert len(tune(model, evaluate=Scores(1.0), **options).trials) == 1
    more = tune(model, evaluate=Scores(1.0), timeout=3600, new_run=True, **options)
    assert len(more.trials) == 4
    assert more.stopped == "max_trials of 4 reached"


def test_timeout_is_per_run(tune: Any, clock: Any) -> None:
    model = onnx_models.mlp(layers=6)
    slow = Scores(1.0, 0.5, clock=clock, seconds=0.3)
    options: dict[str, Any] = {
        "strategy": "random",
        "timeout": 0.7,
        "max_trials": 50,
        "trust_history": True,
    }
    assert len(tune(model, evaluate=slow, **options).trials) == 2
    assert len(tune(model, evaluate=slow, **options).trials) == 5  # the baseline is known


def test_max_trials_counts_recalled_trials_and_not_the_baseline(tune: Any) -> None:
    model = onnx_models.mlp(layers=6)
    scores = Scores(1.0, 0.5)
    options: dict[str, Any] = {"evaluate": scores, "strategy": "random", "trust_history": True}
    first = tune(model, max_trials=3, **options)
    assert (len(first.trials), scores.calls) == (3, 4)
    same = tune(model, max_trials=3, **options)
    assert (len(same.trials), scores.calls) == (3, 4)
    assert all(trial.recalled for trial in same.trials)
    more = tune(model, max_trials=5, **options)
    assert (len(more.trials), scores.calls) == (5, 6)
    assert [trial.number for trial in more.trials] == [1, 2, 3, 4, 5]
    less = tune(model, max_trials=2, **options)
    assert (len(less.trials), scores.calls) == (2, 6)


def test_performance_only_is_one_trial(tune: Any) -> None:
    config = {"tuning": {"exit_policy": {"performance_only": True}}}
    assert len(tune(evaluate=Scores(1.0, 0.1), config=config).trials) == 1


@pytest.mark.parametrize("wrong", [{"max_trials": 0}, {"max_trials": -1}, {"timeout": -1}])
def test_limits_that_make_no_sense_are_refused(tune: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        tune(evaluate=Scores(1.0), **wrong)


@pytest.mark.parametrize("wrong", [True, object(), "much", "150%", -0.5, float("nan")])
def test_goals_that_make_no_sense_are_refused(tune: Any, wrong: Any) -> None:
    scores = Scores(1.0)
    with pytest.raises(ConfigError):
        tune(evaluate=scores, goal=wrong)
    assert scores.calls == 0


def test_goals_in_words(tune: Any) -> None:
    assert tune(evaluate=Scores(1.0, 0.985), goal="2%").met is True
    assert tune(evaluate=Scores(1.0, 0.985), goal="1%", new_run=True).met is False


def test_a_strategy_that_repeats_itself_ends(tune: Any) -> None:
    def stuck(space: Any, context: Any) -> Any:
        while True:
            yield [space.default()]

    result = tune(evaluate=Scores(1.0, 0.5), strategy=stuck)
    assert result.stopped == "the strategy keeps proposing the same recipes"
    assert len(result.trials) == 1


def test_a_strategy_that_proposes_nothing_hands_back_a_model_nobody_evaluated(tune: Any) -> None:
    def silent(space: Any, context: Any) -> Any:
        yield from ()

    result = tune(evaluate=Scores(1.0), strategy=silent)
    assert result.met is None and result.recipe.low_ops
    assert "not evaluated: the strategy has nothing left to try" in repr(result)


def test_the_clock_of_a_run_is_monotonic(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    watch = Watch(Limits(timeout=10), clock=lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: 1e12)  # the clock was set, the laptop slept
    assert watch.over(0, 0, False) is None
    now[0] += 11
    assert watch.over(0, 0, False) == "timeout of 10 s reached"


def test_no_room_reads_the_wall_clock() -> None:
    calls = re.compile(r"\btime\.time\(|\bdatetime\b.*\bnow\(|from time import .*\btime\b")
    rooms = [
        path for room in ("core", "jobs", "strategy") for path in SOURCE.glob(f"{room}/**/*.py")
    ]
    assert rooms
    found = [path.name for path in rooms if calls.search(path.read_text("utf-8"))]
    # They write the time of day into files for people; nobody waits or decides by it.
    assert sorted(found) == ["beacon.py", "result.py", "tensorboard.py"]
