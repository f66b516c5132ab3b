"""Perplexity window by window against FP32's: trials end once their side of the bar is clear."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpot.core.errors import EvaluationError
from lpot.core.evaluation.race import Race
from lpot.core.goal import Goal
from lpot.core.recipe import Recipe
from lpot.core.trial import Score
from lpot.jobs.decoder.paired import FEWEST, PairedPerplexity, spread, standing
from lpot.jobs.decoder.tokens import TokenWindows
from lpot.metric.language import Perplexity

VOCABULARY, WINDOWS = 11, 200
GOAL = Goal(relative=0.02, higher_is_better=False)


class Noisy:
    """A model whose logits are FP32's with a tilt, and noise of its own."""

    def __init__(self, tilt: float = 0.0, noise: float = 0.0) -> None:
        self.tilt, self.noise, self.calls = tilt, noise, 0
        self.backend = self
        self.recipe: Any = None

    def run_all(self, model: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        self.calls += 1
        ids = inputs["input_ids"]
        rng = np.random.default_rng(int(ids.sum()))
        logits = rng.standard_normal((*ids.shape, VOCABULARY)).astype(np.float32)
        np.put_along_axis(logits[:, :-1], ids[:, 1:, None], 2.0 - self.tilt, axis=-1)
        return [logits + self.noise * rng.standard_normal(logits.shape).astype(np.float32)]


def evaluator() -> PairedPerplexity:
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (WINDOWS, 40))
    return PairedPerplexity(TokenWindows(ids), Perplexity())


def test_the_whole_text_gives_the_metric_s_own_perplexity() -> None:
    score, model, metric = evaluator(), Noisy(), Perplexity()
    found = score(model)
    for inputs, labels in score.windows:
        metric.update(model.run_all(model, inputs)[0], labels)
    assert found.accuracy == pytest.approx(metric.result(), rel=1e-9) and found.samples == WINDOWS


@pytest.mark.parametrize("tilt", (0.3, -0.2))
def test_what_is_clearly_on_one_side_ends_early_with_the_truth_within_its_bounds(
    tilt: float,
) -> None:
    score = evaluator()
    baseline = score(Noisy())
    other = Noisy(tilt, 0.05)
    raced = score(other, Race(GOAL, baseline))
    whole = score(Noisy(tilt, 0.05))
    assert raced.samples is not None and raced.samples < WINDOWS / 2 and raced.bounds is not None
    assert raced.bounds[0] < whole.accuracy < raced.bounds[1]
    met = GOAL.is_met(whole.accuracy, baseline.accuracy)
    assert GOAL.is_met(raced.accuracy, baseline.accuracy) is met and met is (tilt < 0)


def at_the_bar(tilt: float, noise: float) -> tuple[Score, float, float]:
    """The raced score of what loses as much as it may, its true one, and the bar."""
    score = evaluator()
    baseline = score(Noisy())
    whole = score(Noisy(tilt, noise)).accuracy
    goal = Goal(relative=whole / baseline.accuracy - 1, higher_is_better=False)
    return score(Noisy(tilt, noise), Race(goal, baseline)), whole, goal.bar(baseline.accuracy)


def test_what_lies_at_the_bar_ends_once_its_loss_is_known_well_enough() -> None:
    raced, whole, bar = at_the_bar(0.02, noise=0.02)
    assert raced.samples is not None and FEWEST <= raced.samples < WINDOWS
    assert raced.bounds is not None and raced.bounds[0] < whole < raced.bounds[1]
    assert raced.accuracy > bar  # a standard error is added: it is no winner


def test_what_only_the_whole_text_can_tell_is_read_to_the_end() -> None:
    raced, whole, _ = at_the_bar(-0.15, noise=0.5)
    assert raced.bounds is None and raced.accuracy == pytest.approx(whole)


def test_losses_of_fp32_are_read_once(tmp_path: Path) -> None:
    first, second, other = evaluator(), evaluator(), evaluator()
    other.windows.ids[0, 0] += 1
    first.keep_in(tmp_path)
    model, killed = Noisy(), Noisy()
    killed.run_all = _until(50, killed.run_all)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first(killed)
    second.keep_in(tmp_path)
    assert second(model).accuracy == evaluator()(Noisy()).accuracy
    assert model.calls == WINDOWS - 50
    low = Noisy(0.1)
    low.recipe = Recipe({}, samples=3)
    second(low)
    assert low.calls == WINDOWS  # FP32's alone are known
    other.keep_in(tmp_path)
    other(fresh := Noisy())
    assert fresh.calls == WINDOWS


def test_a_trial_that_ended_early_is_read_on_from_there() -> None:
    score = evaluator()
    baseline = score(Noisy())
    model = Noisy(0.3, 0.05)
    model.recipe = Recipe({})
    raced = score(model, Race(GOAL, baseline)).samples
    assert raced is not None and raced < WINDOWS
    whole = score(model)
    assert model.calls == WINDOWS == whole.samples
    assert whole.accuracy == evaluator()(Noisy(0.3, 0.05)).accuracy


def test_a_damaged_file_of_losses_costs_only_time(tmp_path: Path) -> None:
    score = evaluator()
    score.keep_in(tmp_path)
    score(Noisy())
    (path,) = tmp_path.iterdir()
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["[0, NaN, 3]", "nothing", *lines[5:-1], lines[-1][:4]]))
    again, model = evaluator(), Noisy()
    again.keep_in(tmp_path)
    assert again(model).accuracy == evaluator()(Noisy()).accuracy and model.calls == 6


def _until(count: int, run: Any) -> Any:
    def counted(*given: Any) -> Any:
        nonlocal count
        if not count:
            raise KeyboardInterrupt
        count -= 1
        return run(*given)

    return counted


def test_a_resumed_run_knows_the_losses_of_fp32() -> None:
    first, second = evaluator(), evaluator()
    baseline = first(Noisy())
    second.remember(first.memory)
    race = Race(GOAL, baseline)
    assert first(Noisy(0.3), race).samples == second(Noisy(0.3), race).samples
    fresh = evaluator()
    fresh.remember({"losses": [1.0]})  # of another text
    assert fresh(Noisy(0.3), race).samples == WINDOWS


def test_verdicts_are_those_of_the_whole_text() -> None:
    """Differences of many kinds: an early verdict is the one that all windows give."""
    rng = np.random.default_rng(1)
    for trial in range(300):
        all_of_it = rng.normal(0.02, 0.03, 400) + rng.exponential(0.01, 400) * (trial % 3)
        order = spread(400)
        for count in range(16, 400, 4):
            side = standing(all_of_it[order[:count]], 400).side(math.log(1.03))
            if side is not None:
                assert side == (all_of_it.mean() <= math.log(1.03)), trial
                break


def test_a_model_that_gives_no_numbers_is_told() -> None:
    class Broken(Noisy):
        def run_all(self, model: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [np.full((*inputs["input_ids"].shape, VOCABULARY), np.inf, np.float32)]

    with pytest.raises(EvaluationError), np.errstate(invalid="ignore"):
        evaluator()(Broken())
