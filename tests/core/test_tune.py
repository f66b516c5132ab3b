"""The loop itself, on a framework of numpy: what it hands back, and when it stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpot.core.evaluation.race import Race
from lpot.core.files.history import DEATHS, History
from lpot.core.goal import Goal, Objective, Objectives
from lpot.core.limits import Limits, Watch
from lpot.core.model import Model
from lpot.core.numerics.resample import PieceBox
from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace, restrict
from lpot.core.strategy import Proposals, StrategyContext
from lpot.core.trial import Score, Trial
from lpot.core.tune import Outcome, Task, tune
from toy_backend import ToyBackend, make_net

BACKEND = ToyBackend()
NET = BACKEND.load(make_net(4, 5, 5, 2))
SPACE = restrict(BACKEND.inspect(NET), (), (0,), False)
BATCH = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


def low(count: int) -> Recipe:
    """The recipe that leaves so many ops in low precision."""
    return SPACE.with_float(SPACE.default(), list(SPACE.choices)[: len(SPACE.choices) - count])


class Scores:
    """An evaluator that knows its answers, by the number of ops in low precision."""

    name, identity, memory, grain = "scores", None, None, None

    def __init__(self, **by_count: float) -> None:
        self.pieces = PieceBox()
        self.accuracies = {int(key.removeprefix("low")): value for key, value in by_count.items()}

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        count = 0 if model.recipe is None else len(model.recipe.low_ops)
        return Score(self.accuracies.get(count, 0.9))

    def remember(self, memory: Any) -> None:
        pass


def proposing(*recipes: Recipe) -> Callable[[TuningSpace, StrategyContext], Proposals]:
    def strategy(space: TuningSpace, context: StrategyContext) -> Proposals:
        for recipe in recipes:
            yield [recipe]

    return strategy


def run(
    folder: Path,
    evaluate: Scores,
    recipes: Sequence[Recipe],
    word: Objective = "performance",
    limits: Limits | None = None,
    **more: Any,
) -> tuple[Outcome, list[Trial]]:
    kept: list[Trial] = []
    folder.mkdir(exist_ok=True)
    observed = BACKEND.observe(NET, [(BATCH,)])
    task = Task(
        backend=BACKEND,
        model=NET,
        evaluate=evaluate,  # type: ignore[arg-type]
        goal=Goal(relative=0.05),
        observe=observed.get,
        space=SPACE,
        strategy=more.pop("strategy", proposing(*recipes)),
        history=History.open(folder / "history.jsonl", {"model": "toy"}),
        watch=Watch(limits or Limits(timeout=600)),
        objectives=Objectives((word,)),
        keep=lambda trial, model: kept.append(trial),
        **more,
    )
    return tune(task), kept


@pytest.mark.parametrize(("word", "wanted"), [("accuracy", 1), ("modelsize", 3)])
def test_the_best_goes_by_the_objective(tmp_path: Path, word: Objective, wanted: int) -> None:
    scores = Scores(low3=0.88, low2=0.89, low1=0.895)
    outcome, kept = run(tmp_path, scores, [low(2), low(1), low(3)], word)
    assert outcome.best is not None and len(outcome.best.recipe.low_ops) == wanted
    assert kept[-1] is outcome.best, "and it is the one on disk"


def test_a_measure_decides_on_performance(tmp_path: Path) -> None:
    def measure(model: Model, score: Score) -> Score:
        count = 0 if model.recipe is None else len(model.recipe.low_ops)
        return Score(score.accuracy, latency=0.001 if count == 1 else 0.009)

    outcome, _ = run(tmp_path, Scores(), [low(3), low(1), low(2)], measure=measure)
    assert outcome.best is not None and len(outcome.best.recipe.low_ops) == 1


def test_the_first_success_ends_it_unless_the_strategy_settles(tmp_path: Path) -> None:
    recipes = [low(3), low(2), low(1)]
    stopped, _ = run(tmp_path / "a", Scores(low3=0.1), recipes, limits=Limits())
    assert [len(trial.recipe.low_ops) for trial in stopped.trials] == [3, 2]
    assert stopped.stopped == "the bar is met"
    settled, _ = run(tmp_path / "b", Scores(low3=0.1), recipes, limits=Limits(), settles=True)
    assert len(settled.trials) == 3


def test_a_rerun_recalls_and_agrees(tmp_path: Path) -> None:
    recipes = [low(2), low(1), low(3)]
    first, _ = run(tmp_path, Scores(low1=0.895, low2=0.88), recipes, "accuracy")
    again, kept = run(tmp_path, Scores(low1=0.0, low2=0.0, low3=0.0), recipes, "accuracy")
    assert all(trial.recalled for trial in again.trials) and not kept
    assert again.best is not None and first.best is not None
    assert again.best.recipe == first.best.recipe


def test_nothing_that_failed_is_handed_back(tmp_path: Path) -> None:
    class Broken(Scores):
        def __call__(self, model: Model, race: Race | None = None) -> Score:
            if model.recipe is not None:
                raise RuntimeError("no kernel")
            return Score(0.9)

    outcome, kept = run(tmp_path, Broken(), [low(3), low(2)])
    assert outcome.best is None and not kept
    assert [trial.error for trial in outcome.trials] == ["RuntimeError: no kernel"] * 2


def test_a_strategy_can_have_a_trial_confirmed_on_everything_and_go_on(tmp_path: Path) -> None:
    class Flattering(Scores):
        def __call__(self, model: Model, race: Race | None = None) -> Score:
            whole = super().__call__(model)
            return whole if race is None else Score(0.9, bounds=(0.88, 0.92))

    confirmed: list[Trial] = []

    def careful(space: TuningSpace, context: StrategyContext) -> Proposals:
        for recipe in (low(3), low(2), low(1)):
            (trial,) = yield [recipe]
            confirmed.append(context.confirm(trial))
            assert context.confirm(confirmed[-1]) is confirmed[-1], "what is known is not repeated"
            if confirmed[-1].met:
                return

    outcome, kept = run(
        tmp_path, Flattering(low3=0.1), [], limits=Limits(), strategy=careful, settles=True
    )
    assert [trial.met for trial in confirmed] == [False, True]
    assert outcome.best is confirmed[-1] and kept[-1] is outcome.best


def test_what_was_confirmed_goes_before_what_was_raced_out(tmp_path: Path) -> None:
    class Raced(Scores):
        def __call__(self, model: Model, race: Race | None = None) -> Score:
            whole = super().__call__(model)
            return whole if race is None else Score(whole.accuracy, bounds=(0.88, 0.92))

    def careful(space: TuningSpace, context: StrategyContext) -> Proposals:
        yield [low(3)]  # the smaller one, and the best by what is known of it
        (trial,) = yield [low(2)]
        context.confirm(trial)

    outcome, kept = run(
        tmp_path, Raced(), [], "modelsize", limits=Limits(), strategy=careful, settles=True
    )
    assert outcome.best is not None and outcome.best.recipe == low(2) and kept[-1] is outcome.best
    assert len(kept) == 2, "nothing else is evaluated once more"


def test_a_recipe_in_which_the_process_died_comes_last(tmp_path: Path) -> None:
    """It may have been killed for another reason: with all else missed, it is tried once more."""
    history = History.open(tmp_path / "history.jsonl", {"model": "toy"})
    for _ in range(DEATHS):
        history.begin(1, low(3))
    outcome, _ = run(tmp_path, Scores(low2=0.1), [low(3), low(2)], limits=Limits())
    assert outcome.best is not None and outcome.best.met and outcome.best.recipe == low(3)
