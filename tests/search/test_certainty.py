"""How sure an answer is: intervals, grain, held-out data, and switches of the yaml."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from lpot.core.errors import ConfigError, EvaluationError
from lpot.core.goal import Goal
from lpot.core.progress import Listener
from lpot.core.repairs import NONE, Repairs
from lpot.core.results.report import Report
from lpot.core.results.result import Result
from lpot.jobs.tune.api import tune
from lpot.report.next_step import next_steps
from lpot.report.verdict import headline
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


def test_a_bar_within_the_interval_is_met_and_not_proven(tmp_path: Path) -> None:
    """32 answers that all agree leave 9 % open."""
    near = by_metric(tmp_path / "a", goal=Goal(absolute=0.1))
    again = by_metric(tmp_path / "a", goal=Goal(absolute=0.1))
    far = by_metric(tmp_path / "b", goal=Goal(absolute=0.5))
    assert near.met and near.proven is False and near.to_json()["proven"] is False
    assert near.interval is not None and near.interval.low < 0.1 < near.interval.high
    assert near.interval.needed is not None and near.interval.needed > 32
    assert "met on these 32 samples; not proven" in headline(near).plain
    assert any(
        f"whether the loss stays within 0.1; about {near.interval.needed} would" in note
        for note in near.notes
    )
    # A rerun knows the scores alone, and says the same to the letter.
    assert all(trial.recalled for trial in again.trials)
    assert (again.verdict.text, again.interval) == (near.verdict.text, near.interval)
    assert far.met and far.proven is True and headline(far).plain.startswith("bar met: ")


def test_data_that_can_never_decide_say_what_they_prove(tmp_path: Path) -> None:
    """Nobody is told to evaluate more than ten times what was given."""
    result = by_metric(tmp_path, goal=Goal(absolute=0.04))
    assert result.interval is not None and result.interval.needed is None
    high = f"{result.interval.high:.3g}"
    assert any(f"the bound that they prove is a loss of at most {high}" in n for n in result.notes)


def test_one_number_gets_a_word_on_how_sure_it_is(tmp_path: Path) -> None:
    torn = MENDED["perceptron"](0)
    result = tune(
        torn.model, torn.batches[:4], torn.score, 0.1, workspace=tmp_path, measure_speed=False
    )
    assert result.interval is None and result.proven is None
    assert any("the uncertainty of the drop is unknown" in note for note in result.notes)


def scored(folder: Path, evaluate: Any, **options: Any) -> Result:
    torn = MENDED["perceptron"](0)
    return tune(
        torn.model, torn.batches[:4], evaluate, workspace=folder, measure_speed=False, **options
    )


def test_no_advice_on_an_interrupted_run(tmp_path: Path) -> None:
    torn = GUILTY["stubborn layer"](0)

    class Impatient(Listener):
        def phase(self, text: str, *args: Any, **options: Any) -> None:
            if "ranking" in text:
                os.kill(os.getpid(), signal.SIGINT)

    result = tune(
        torn.model,
        torn.batches[:-1],
        torn.score,
        Goal(absolute=0.1),
        workspace=tmp_path,
        measure_speed=False,
        listener=Impatient(),
    )
    assert result.interrupted and result.met is False
    assert not any("Try " in note for note in result.notes)
    report = json.loads((tmp_path / "report.json").read_text())
    assert not any("calibration data" in step for step in next_steps(Report.from_json(report)))


def test_performance_only_is_not_told_of_max_trials(tmp_path: Path) -> None:
    torn = GUILTY["stubborn layer"](0)
    config = {"tuning": {"exit_policy": {"performance_only": True}}}
    result = tune(
        torn.model,
        torn.batches[:-1],
        torn.score,
        Goal(absolute=0.1),
        config=config,
        workspace=tmp_path,
        measure_speed=False,
    )
    advice = [note for note in result.notes if "Try " in note]
    assert result.met is False and advice and not any("max_trials" in note for note in advice)


def test_one_sample_worth_more_than_the_tolerance_is_said(tmp_path: Path) -> None:
    fine = by_metric(tmp_path / "a", goal=Goal(absolute=0.1))
    coarse = by_metric(tmp_path / "b", goal=Goal(absolute=0.01))
    said = "each of the 32 evaluated samples is worth up to 0.03125"
    assert not any(said in note for note in fine.notes)
    assert any(said in note for note in coarse.notes)


def test_held_out_data_confirm_the_winner(tmp_path: Path) -> None:
    torn = MENDED["perceptron"](0)
    result = by_metric(tmp_path, goal=Goal(absolute=0.2), held_out=labelled(torn, 8)[4:])
    assert result.held_out is not None and result.held_out.met
    assert result.held_out.baseline == 1.0
    assert any("the bar is met there too" in note for note in result.notes)


def test_held_out_data_may_disagree(tmp_path: Path) -> None:
    torn = MENDED["perceptron"](0)

    def spiteful(model: Any) -> float:
        return 1.0 if model == torn.model else 0.5

    result = by_metric(tmp_path, goal=Goal(absolute=0.2), held_out=spiteful)
    assert result.met and result.held_out is not None and not result.held_out.met
    assert any("selection bias" in note for note in result.notes)


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
        "tuning": {"accuracy_criterion": {"absolute": 0.9, "really": True}},
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
    assert switched(tmp_path / "a").recipe.repairs == Repairs(bias_correction=True)
    assert switched(tmp_path / "b", fast_bias_correction=False).recipe.repairs == NONE
    both = switched(tmp_path / "c", weight_correction=True)
    assert both.met and both.recipe.repairs == Repairs(bias_correction=True, weight_correction=True)
