"""Bars and evaluations that can't mean what was meant are asked about before a search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import lpot
from lpot.core.errors import ConfigError, EvaluationError
from lpot.core.files.history import History
from lpot.core.goal import Goal, Objectives
from lpot.core.preference import Preference
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.results.result import Result
from lpot.core.trial import Score, State, Trial
from lpot.jobs.tune import sense
from search.tear import GUILTY, MENDED, outputs

TORN = MENDED["perceptron"](0)


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sense, "BLIND", True)


def tuned(folder: Path, evaluate: Any, goal: Any = 0.01, **options: Any) -> Result:
    return lpot.tune(
        TORN.model,
        TORN.batches[:4],
        evaluate,
        goal,
        **{"workspace": folder, "measure_speed": False, **options},
    )


def test_a_share_to_keep_given_as_a_share_to_lose(tmp_path: Path) -> None:
    calls: list[Any] = []

    def score(model: Any) -> float:
        calls.append(model)
        return 0.9

    for goal in (0.99, "99%", 0.25):
        with pytest.raises(ConfigError, match=r'bar="99%".*really=True') as caught:
            tuned(tmp_path, score, goal)
        assert caught.value.path == "goal"
    assert not calls  # before the first evaluation
    assert tuned(tmp_path, score, 0.99, really=True).met
    assert tuned(tmp_path, score, 0.2, really=True).met


@pytest.mark.parametrize(
    ("score", "loss", "asks"),
    [
        (0.9, 1.0, True),
        (0.9, 0.5, False),
        (76.4, 0.5, False),
        (76.4, 60, True),
        (2300.0, 20, False),
    ],
)
def test_an_absolute_loss_is_held_against_the_range_of_scores(
    score: float, loss: float, asks: bool, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def evaluate(model: Any) -> float:
        seen.append(model.graph)
        return score

    if not asks:
        assert tuned(tmp_path, evaluate, Goal(absolute=loss)).met
        return
    with pytest.raises(ConfigError, match="really=True") as caught:
        tuned(tmp_path, evaluate, Goal(absolute=loss))
    assert caught.value.path == "goal" and len(seen) == 1


def test_an_evaluation_without_a_model_is_an_error_and_again_one(tmp_path: Path) -> None:
    for _ in range(2):  # the trial was not written down as a success
        with pytest.raises(EvaluationError, match=r"object that is not a model.*really=True"):
            tuned(tmp_path, lambda model: 0.75)
    assert tuned(tmp_path, lambda model: 0.75, really=True).met


def test_an_honest_tie_is_not_questioned(tmp_path: Path) -> None:
    asked: list[object] = []

    def right(model: Any) -> float:
        asked.append(model)
        return float((outputs(model, TORN.batches[0]).argmax(1) >= 0).mean())

    result = tuned(tmp_path, right)
    assert result.baseline is not None and result.accuracy == result.baseline.accuracy == 1.0
    assert len(asked) == result.evaluations + 1  # the last one raised at once


@pytest.mark.parametrize(
    ("higher", "low", "word"), [(True, 0.509, "a loss"), (False, 0.01, "an acc")]
)
def test_a_loss_given_as_a_score_is_asked_about(
    higher: bool, low: float, word: str, tmp_path: Path
) -> None:
    def score(model: Any) -> float:
        return 0.063 if model == TORN.model else low

    goal = Goal(relative=0.01, higher_is_better=higher)
    with pytest.raises(EvaluationError, match=f"Is it {word}.*higher_is_better={not higher}"):
        tuned(tmp_path, score, goal)
    result = tuned(tmp_path, score, goal, really=True)
    assert result.met and "implausible" in result.verdict.text


def test_a_small_gain_is_asked_about_where_samples_prove_it(tmp_path: Path) -> None:
    """A loss that INT8 makes 3 % larger in each of 64 samples: no luck."""
    losses = np.linspace(0.4, 0.6, 64)

    def loss(model: Any) -> Iterator[np.ndarray]:
        yield losses if model == TORN.model else losses * 1.03

    with pytest.raises(EvaluationError, match="Is it a loss"):
        tuned(tmp_path, loss)

    def lucky(model: Any) -> Iterator[np.ndarray]:  # of 64 answers one more is right
        yield np.arange(64) < (57 if model == TORN.model else 58)

    assert tuned(tmp_path / "lucky", lucky).met


# -- chance


def test_a_bar_that_must_be_proven_is_searched_until_it_is(tmp_path: Path) -> None:
    """All-INT8 meets the bar on 400 samples and proves nothing; one op in FP32 does."""
    guilty = GUILTY["stubborn layer"](0)

    def right(model: Any) -> Iterator[np.ndarray]:
        floats = 0 if model == guilty.model else _wrong(guilty, model)
        yield np.arange(400) >= floats

    def made(folder: str, proven: bool) -> Result:
        return lpot.tune(
            guilty.model,
            guilty.batches[:4],
            right,
            Goal(absolute=0.02, proven=proven),
            strategy="basic",
            workspace=tmp_path / folder,
            measure_speed=False,
        )

    lucky, sure = made("a", False), made("b", True)
    assert lucky.met and lucky.proven is False and len(lucky.trials) == 1
    assert sure.met and sure.proven is True and len(sure.trials) > 1
    again = made("b", True)
    assert again.met and again.proven is True and again.recipe == sure.recipe
    assert all(trial.recalled for trial in again.trials)


def _wrong(guilty: Any, model: Any) -> int:
    """Answers lost: 6 with the stubborn layer in INT8, 1 without."""
    exact, found = (outputs(one, guilty.batches[0]) for one in (guilty.model, model))
    return 6 if np.abs(exact - found).max() > 0.1 * np.abs(exact).max() else 1


def test_one_number_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="yield a score per sample"):
        tuned(tmp_path, TORN.score, Goal(relative=0.01, proven=True))
    config = {"tuning": {"accuracy_criterion": {"proven": True}, "executor": "process"}}
    with pytest.raises(ConfigError, match="must be proven needs `serial`"):
        tuned(tmp_path, TORN.score, None, config=config)


def trial(accuracy: float, latency: float | None, floats: int = 0) -> Trial:
    byte = OpConfig(TensorConfig("uint8"))
    keys = [OpKey(f"op{at}", "Conv") for at in range(4)]
    recipe = Recipe({key: FP32 if at < floats else byte for at, key in enumerate(keys)})
    return Trial(1, recipe, State.DONE, Score(accuracy, latency=latency), True)


@pytest.mark.parametrize(
    ("safe", "lucky", "wins"),
    [
        (trial(0.913, 1.02, 1), trial(0.906, 1.0), True),  # for 2 % of speed
        (trial(0.913, 1.05, 1), trial(0.906, 1.0), False),  # for 5 %
        (trial(0.913, 1.02, 1), trial(0.909, 1.0), False),  # that one stays clear of the bar, too
        (trial(0.907, 1.02, 1), trial(0.906, 1.0), False),  # this one does not
        (trial(0.913, None, 1), trial(0.906, None), False),  # what it costs is not known
    ],
)
def test_a_bar_just_met_by_luck_loses_to_one_met_clearly(
    safe: Trial, lucky: Trial, wins: bool
) -> None:
    preference = Preference(Goal(relative=0.01), Score(0.915, latency=2.0), Objectives())
    assert preference.prefers(safe, lucky) is wins
    assert preference.prefers(lucky, safe) is not wins


def test_what_is_meant_is_no_other_question(tmp_path: Path) -> None:
    """`really` answers one: the history goes on."""
    first = tuned(tmp_path, TORN.score, really=True)
    again = tuned(tmp_path, TORN.score)
    assert again.baseline == first.baseline and all(t.recalled for t in again.trials)
    assert len(History.read(tmp_path / "history.jsonl").trials) == len(first.trials)
