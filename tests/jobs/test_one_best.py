"""Whoever is asked for the best trial of a run names the one that was handed back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lpot.core.files.history import History
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext
from lpot.jobs.inspect_tensors import best_trial
from lpot.jobs.report.read import read_report
from lpot.jobs.tune.api import tune
from toy_backend import Net, ToyBackend, make_net

NET = make_net(6, 12, 12, 12, 3)
DATA = [np.random.default_rng(seed).standard_normal((8, 6)).astype(np.float32) for seed in (1, 2)]
TRUTH = [NET(x) for x in DATA]


def score(candidate: Net) -> float:
    error = sum(float(np.square(candidate(x) - y).sum()) for x, y in zip(DATA, TRUTH, strict=True))
    return 1.0 - error / sum(float(np.square(y).sum()) for y in TRUTH)


def one_more_back(space: TuningSpace, context: StrategyContext) -> Proposals:
    """Ever less in low precision: the most accurate comes last, the smallest first."""
    keys = list(space.choices)
    for count in range(len(keys)):
        yield [space.with_float(space.default(), keys[:count])]


@pytest.mark.parametrize("word", ["accuracy", "modelsize", "performance"])
def test_history_report_and_inspect_agree_with_the_run(tmp_path: Path, word: str) -> None:
    result = tune(
        NET,
        [(x,) for x in DATA],
        score,
        config={"tuning": {"objective": word, "exit_policy": {"timeout": 600}}},
        framework=ToyBackend(),
        strategy=one_more_back,
        workspace=tmp_path,
        measure_speed=False,
    )
    assert result.best is not None and result.met and len(result.trials) == 4
    assert (result.best.number == 1) is (word != "accuracy"), "the objectives disagree here"
    assert best_trial(History.read(tmp_path / "history.jsonl")).number == result.best.number
    (tmp_path / "report.json").unlink()
    assert read_report(tmp_path).result["accuracy"] == result.accuracy
