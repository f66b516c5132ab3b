"""How sure an answer is: intervals, grain, held-out data, and switches of the yaml."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from lpot.core.errors import ConfigError, EvaluationError
from lpot.core.goal import Goal
from lpot.core.result import Result
from lpot.jobs.tune.api import tune
from search.tear import GUILTY, MENDED, Torn, outputs


def labelled(torn: Torn, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Batches with what FP32 says as labels."""
    return [(batch[0], outputs(torn.model, batch).argmax(1)) for batch in torn.batches[:count]]


def by_metric(folder: Path, **options: Any) -> Result:
    torn = MENDED["perceptron"](0)
    loader = labelled(torn, 4)
    return tune(
        torn.model,
        torn.batches[:4],
        eval_loader=loader,
        config={"evaluation": {"accuracy": {"metric": {"topk": 1}}}},
        workspace=folder,
        measure_speed=False,
        **options,
    )


def test_the_drop_has_an_interval_where_samples_are_known(tmp_path: Path) -> None:
    result = by_metric(tmp_path, goal=Goal(absolute=0.1))
    assert result.interval is not None and result.interval.samples == 32
    assert result.baseline is not None and result.accuracy is not None
    drop = result.goal.drop(result.accuracy, result.baseline.accuracy)
    assert result.interval.low <= drop <= result.interval.high
    assert result.to_json()["interval"]["samples"] == 32


def test_samples_of_a_generator_are_known_too(tmp_path: Path) -> None:
    torn = MENDED["perceptron"](0)

    def right(model: Any) -> Iterator[np.ndarray]:
        for batch, label in labelled(torn, 4):
            yield outputs(model, (batch,)).argmax(1) == label

    result = tune(torn.model, torn.batches[:4], right, 0.1, workspace=tmp_path, measure_speed=False)
    assert result.interval is not None and result.interval.samples == 32


def test_one_sample_worth_more_than_the_tolerance_is_said(tmp_path: Path) -> None:
    fine = by_metric(tmp_path / "a", goal=Goal(absolute=0.1))
    coarse = by_metric(tmp_path / "b", goal=Goal(absolute=0.01))
    said = "one of the 32 samples that are evaluated is worth up to 0.03125"
    assert not any(said in note for note in fine.notes)
    assert any(said in note for note in coarse.notes)


def test_held_out_data_confirm_the_winner(tmp_path: Path) -> None:
    torn = MENDED["perceptron"](0)
    result = by_metric(tmp_path, goal=Goal(absolute=0.2), held_out=labelled(torn, 8)[4:])
    assert result.held_out is not None and result.held_out.met
    assert result.held_out.baseline == 1.0
    assert any("the bar holds there too" in note for note in result.notes)


def test_held_out_data_may_disagree(tmp_path: Path) -> None:
    torn = MENDED["perceptron"](0)

    def spiteful(model: Any) -> float:
        return 1.0 if model == torn.model else 0.5

    result = by_metric(tmp_path, goal=Goal(absolute=0.2), held_out=spiteful)
    assert result.met and result.held_out is not None and not result.held_out.met
    assert any("chosen by chance" in note for note in result.notes)


def test_held_out_data_without_a_metric_are_refused_at_once(tmp_path: Path) -> None:
    torn = MENDED["perceptron"](0)

    def never(model: Any) -> float:
        raise AssertionError("evaluated")

    with pytest.raises((ConfigError, EvaluationError), match="metric"):
        tune(torn.model, torn.batches, never, held_out=torn.batches, workspace=tmp_path)


def switched(folder: Path, **recipes: Any) -> Result:
    torn = GUILTY["stubborn layer"](0)
    config = {
        "quantization": {"recipes": recipes},
        "tuning": {"accuracy_criterion": {"absolute": 0.9}},
    }
    return tune(
        torn.model,
        torn.batches[:-1],
        torn.score,
        config=config,
        workspace=folder,
        measure_speed=False,
    )


@pytest.mark.parametrize(
    ("switch", "kept"),
    [
        ("first_conv_or_matmul_quantization", ("conv0",)),
        ("last_conv_or_matmul_quantization", ("fc",)),
        ("pre_post_process_quantization", ()),
    ],
)
def test_switches_keep_ops_in_fp32(switch: str, kept: tuple[str, ...], tmp_path: Path) -> None:
    assert switched(tmp_path, **{switch: False}).float_ops == kept


def test_switches_of_repairs(tmp_path: Path) -> None:
    assert switched(tmp_path / "a").recipe.repairs == ("bias",)
    assert switched(tmp_path / "b", fast_bias_correction=False).recipe.repairs == ()
    both = switched(tmp_path / "c", weight_correction=True)
    assert both.recipe.repairs == ("bias", "weight") and both.met
