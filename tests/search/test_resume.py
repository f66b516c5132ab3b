"""A search cut off in the middle and taken up again is the same as one left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from lpot.core.recipe import FP32, OpKey, Recipe
from lpot.core.results.result import Result
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext
from lpot.core.trial import State, Trial
from lpot.jobs.tune.api import tune
from search import scoring

IMPOSSIBLE = {"absolute": 0.0}  # so that no trial ends the search


def run(folder: Path, trials: int, strategy: object, evaluate: object = scoring.score) -> Result:
    torn = scoring.net()
    return tune(
        torn.model,
        torn.batches[:-1],
        evaluate,  # type: ignore[arg-type]
        config={"tuning": {"accuracy_criterion": IMPOSSIBLE}},
        strategy=strategy,  # type: ignore[arg-type]
        max_trials=trials,
        workspace=folder,
        measure_speed=False,
        trust_history=True,
    )


@pytest.mark.parametrize("name", ["tpe", "bayesian", "random", "basic", "mse_v2"])
def test_resumed_equals_undisturbed(name: str, tmp_path: Path) -> None:
    if name in ("tpe", "bayesian"):
        pytest.importorskip("optuna")
    whole = run(tmp_path / "whole", 5, name)
    run(tmp_path / "parts", 2, name)
    calls: list[object] = []

    def counted(model: object) -> float:
        calls.append(model)
        return scoring.score(model)  # type: ignore[arg-type]

    resumed = run(tmp_path / "parts", 5, name, counted)
    assert [t.recipe.digest for t in resumed.trials] == [t.recipe.digest for t in whole.trials]
    assert len(calls) == len(whole.trials) - 2


def test_a_strategy_that_repeats_itself(tmp_path: Path) -> None:
    def stubborn(space: TuningSpace, context: StrategyContext) -> Proposals:
        while True:
            yield [space.default(), space.default()]

    result = run(tmp_path, 100, stubborn)
    assert (
        len(result.trials) == 1
        and result.stopped == "the strategy keeps proposing the same recipes"
    )


def test_a_strategy_that_names_an_unknown_op(tmp_path: Path) -> None:
    seen: list[Sequence[Trial]] = []

    def mistaken(space: TuningSpace, context: StrategyContext) -> Proposals:
        default = space.default()
        low = next(iter(default.ops.values()))
        seen.append((yield [Recipe({**default.ops, OpKey("nowhere", "Conv"): low})]))
        seen.append((yield [Recipe({**default.ops, OpKey("nowhere", "Conv"): FP32})]))

    run(tmp_path, 5, mistaken)
    (first,), (second,) = seen
    assert first.state is State.FAILED and "nowhere" in (first.error or "")
    assert second.state is State.DONE


DYING = """
import sys
from pathlib import Path
from search.scoring import crashing
from search.test_resume import run
if __name__ == "__main__":
    result = run(Path(sys.argv[1]), 3, "basic", crashing)
    print([trial.error for trial in result.trials])
"""


@pytest.mark.slow
def test_a_recipe_in_which_the_process_dies_is_given_up(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DYING, str(tmp_path / "w")]
    paths = os.pathsep.join(path for path in sys.path if path)
    done = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        for _ in range(4)
    ]
    # Once may be chance (a machine switched off): it is tried again. Twice is not.
    assert [run.returncode for run in done] == [-signal.SIGSEGV, -signal.SIGSEGV, 0, 0]
    assert all("its process crashed" in run.stdout for run in done[2:])


def test_an_interrupted_trial_is_no_death(tmp_path: Path) -> None:
    def leaving(model: object) -> float:
        if scoring.is_all_low(model):  # type: ignore[arg-type]
            raise KeyboardInterrupt
        return scoring.score(model)  # type: ignore[arg-type]

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, 3, "basic", leaving)
    result = run(tmp_path, 3, "basic")
    assert result.trials[0].state is State.DONE
