"""Nets torn apart: the bar is met within 2 + log2(ops) evaluations, and the guilty are named."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx

from lpot.core.errors import ConfigError
from lpot.core.goal import Goal
from lpot.core.results.result import Result
from lpot.jobs.tune.api import tune
from search.tear import GUILTY, MENDED, Torn, outputs
from search.tear_more import GUILTY_MORE, MENDED_MORE, common_height

GOAL = Goal(absolute=0.1)
ALL_MENDED = {**MENDED, **MENDED_MORE}
ALL_GUILTY = {**GUILTY, **GUILTY_MORE}


def search(torn: Torn, folder: Path, **options: object) -> Result:
    return tune(
        torn.model,
        calib=torn.batches[:-1],
        evaluate=torn.score,
        goal=GOAL,
        workspace=folder,
        measure_speed=False,
        **options,  # type: ignore[arg-type]
    )


def ops(result: Result) -> int:
    return sum(key.kind in ("Conv", "MatMul", "Gemm") for key in result.recipe.ops)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ALL_MENDED)
def test_what_can_be_mended_needs_no_fp32(name: str, seed: int, tmp_path: Path) -> None:
    result = search(ALL_MENDED[name](seed), tmp_path)
    assert result.met and result.evaluations == 2
    assert result.float_ops == ()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ALL_GUILTY)
@pytest.mark.parametrize("strategy", ["auto", "basic"])
def test_the_guilty_are_named(name: str, strategy: str, seed: int, tmp_path: Path) -> None:
    torn = ALL_GUILTY[name](seed)
    config = {"tuning": {"strategy": {"name": strategy, "settle": True}}}
    result = search(torn, tmp_path, config=config)
    assert result.met and result.evaluations <= 2 + math.ceil(math.log2(ops(result)))
    assert set(result.float_ops) <= torn.guilty
    # Where all in INT8 already meets the bar nobody is to blame.
    assert set(result.float_ops) & torn.guilty or result.evaluations == 2


@pytest.mark.parametrize(
    "strategy", [{"name": "basic", "settle": False}, "mse", "tpe", "random", "exhaustive"]
)
def test_without_time_the_first_success_is_the_last_trial(strategy: object, tmp_path: Path) -> None:
    config = {"tuning": {"strategy": strategy}}
    result = search(ALL_GUILTY["two stubborn"](0), tmp_path, config=config)
    assert [trial.met for trial in result.trials].index(True) == len(result.trials) - 1
    assert result.stopped == "the bar is met"


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("strategy", ["auto", "basic"])
def test_an_error_that_no_label_sees_misleads_nobody(
    strategy: str, seed: int, tmp_path: Path
) -> None:
    torn = common_height(seed)
    labels = [outputs(torn.model, batch).argmax(1) for batch in torn.batches]

    def accuracy(model: onnx.ModelProto) -> float:
        found = [outputs(model, batch).argmax(1) for batch in torn.batches]
        return float(np.mean(np.equal(found, labels)))

    result = tune(
        torn.model,
        torn.batches[:2],
        accuracy,
        goal=GOAL,
        strategy=strategy,
        workspace=tmp_path,
        measure_speed=False,
    )
    assert result.met and set(result.float_ops) == torn.guilty and result.evaluations == 3


@pytest.mark.parametrize("strategy", ["mse", "mse_v2"])
def test_other_strategies_find_them_too(strategy: str, tmp_path: Path) -> None:
    torn = GUILTY["stubborn layer"](0)
    result = search(torn, tmp_path, strategy=strategy)
    assert result.met and set(result.float_ops) == torn.guilty


def test_a_bar_that_can_not_be_met(tmp_path: Path) -> None:
    torn = GUILTY["stubborn layer"](0)

    def spiteful(model: object) -> float:
        return 1.0 if model == torn.model else 0.5

    result = tune(
        torn.model,
        calib=torn.batches[:-1],
        evaluate=spiteful,
        goal=GOAL,
        workspace=tmp_path,
        measure_speed=False,
    )
    # One more: had the ranking been wrong, the op ranked last alone could have been to blame.
    assert result.met is False and result.evaluations <= 3 + math.ceil(math.log2(ops(result)))
    assert any("outputs most in low precision: conv2" in note for note in result.notes)


@pytest.mark.parametrize(
    ("name", "said"), [("hawq_v2", "mse_v2 or basic"), ("auto_mixed_precision", "bf16")]
)
def test_what_a_backend_lacks_is_said_before_anything_is_evaluated(
    name: str, said: str, tmp_path: Path
) -> None:
    torn = GUILTY["stubborn layer"](0)

    def never(model: object) -> float:
        raise AssertionError("evaluated")

    with pytest.raises(ConfigError, match=said):
        tune(torn.model, torn.batches, never, strategy=name, workspace=tmp_path)


@pytest.mark.parametrize("level", ["auto", 0])
def test_quant_level(level: object, tmp_path: Path) -> None:
    torn = GUILTY["stubborn layer"](0)
    config = {
        "quantization": {"quant_level": level},
        "tuning": {"accuracy_criterion": {"absolute": 0.1}},
    }
    result = tune(
        torn.model,
        torn.batches[:-1],
        torn.score,
        config=config,
        workspace=tmp_path,
        measure_speed=False,
    )
    # Convolutions as a kind miss the bar; the classifier alone holds it.
    assert result.met and "conv2" in result.float_ops


def test_a_budget_goes_on_to_the_best(tmp_path: Path) -> None:
    torn = GUILTY["stubborn layer"](0)
    result = search(torn, tmp_path, timeout=600.0)
    assert result.met and result.float_ops == ("conv2",)
    assert result.stopped == "the strategy has nothing left to try"
