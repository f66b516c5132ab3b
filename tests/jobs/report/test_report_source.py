"""Reports of whatever a workspace holds, and two of them compared."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import lpot
import onnx_models
from lpot.cli import cli
from lpot.core.errors import HistoryError
from lpot.core.files.history import History
from lpot.core.goal import Goal
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.results.report import OpRow, Report
from lpot.core.trial import Score, State, Trial
from lpot.jobs.report.read import read_report
from lpot.report.html import page
from lpot.report.versus import versus

INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))
KEYS = [OpKey(f"conv{index}", "Conv") for index in range(4)]


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def trial(number: int, accuracy: float | None) -> Trial:
    recipe = Recipe({key: FP32 if at < number else INT8 for at, key in enumerate(KEYS)})
    if accuracy is None:
        return Trial.failed(number, recipe, RuntimeError("no kernel"), 0.1)
    score = Score(accuracy, 1.0, size=400)
    return Trial(number, recipe, State.DONE, score, accuracy >= 0.891, seconds=2.0)


def journal(folder: Path, *accuracies: float | None, goal: bool = True) -> Path:
    info: dict[str, object] = {"framework": "onnx", "name": "digits"}
    if goal:
        info["goal"] = Goal(relative=0.01).to_json()
    folder.mkdir(parents=True, exist_ok=True)
    history = History.open(folder / "history.jsonl", {"model": "abc"}, info)
    history.record_baseline(Score(0.9, size=1000), None)
    for number, accuracy in enumerate(accuracies, start=1):
        history.append(trial(number, accuracy))
    return folder


def test_a_run_that_was_cut_off(tmp_path: Path) -> None:
    report = read_report(journal(tmp_path, 0.5, 0.895, 0.899))
    assert report.state == "stopped"
    assert report.result["met"] is True
    assert report.result["accuracy"] == 0.895, "the one with the fewest ops in FP32"
    assert report.bar == pytest.approx(0.891)
    assert [op.precision for op in report.ops] == ["fp32", "fp32", "int8", "int8"]
    assert "to resume from the finished trials" in page(report)


def test_a_torn_last_line_is_said(tmp_path: Path) -> None:
    folder = journal(tmp_path, 0.5, 0.895)
    file = folder / "history.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    before = file.read_bytes()
    report = read_report(folder)
    assert len(report.trials) == 1
    assert "torn" in report.result["notes"][0]
    assert file.read_bytes() == before, "looking mends nothing"


def test_all_trials_failed(tmp_path: Path) -> None:
    report = read_report(journal(tmp_path, None, None))
    assert report.result["met"] is None
    assert "all 2 trial(s) failed" in report.result["notes"][0]
    assert "no kernel" in page(report)


def test_a_history_of_an_older_version_has_no_goal(tmp_path: Path) -> None:
    report = read_report(journal(tmp_path, 0.895, goal=False))
    assert report.bar is None
    assert "0.895" in page(report)


def test_an_older_report_gives_way_to_a_newer_history(tmp_path: Path) -> None:
    folder = journal(tmp_path, 0.895)
    done = Report("digits", "onnx", {"met": True, "accuracy": 0.7}, None, (), ())
    size = (folder / "history.jsonl").stat().st_size
    # Whatever the clocks say: a report dated ahead must not hide newer trials.
    for when in (0, 2_000_000_000):
        (folder / "report.json").write_text(json.dumps({**done.to_json(), "journal": size - 9}))
        os.utime(folder / "report.json", (when, when))
        assert read_report(folder).result["accuracy"] == 0.895
        (folder / "report.json").write_text(json.dumps({**done.to_json(), "journal": size}))
        os.utime(folder / "report.json", (when, when))
        assert read_report(folder).result["accuracy"] == 0.7
    (folder / "report.json").write_text(json.dumps(done.to_json()))  # of an older version
    assert read_report(folder).result["accuracy"] == 0.895


def test_a_damaged_report_gives_way_to_the_history(tmp_path: Path) -> None:
    folder = journal(tmp_path, 0.895)
    for text in ("", "{", "[]", '{"name": 1}', "[" * 100_000):
        (folder / "report.json").write_text(text)
        assert read_report(folder).result["accuracy"] == 0.895


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no such workspace"):
        read_report(tmp_path / "none")
    with pytest.raises(HistoryError, match="no report here"):
        read_report(tmp_path)
    journal(tmp_path / "onnx" / "digits", 0.895)
    with pytest.raises(HistoryError, match=r"there are: .*digits"):
        read_report(tmp_path)
    found = run("report", str(tmp_path / "none"))
    assert found.exit_code == 2
    assert "Traceback" not in found.output


def test_a_folder_of_runs_is_a_list(tmp_path: Path) -> None:
    journal(tmp_path / "onnx" / "digits", 0.895)
    journal(tmp_path / "onnx" / "letters", 0.5)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "report.json").write_text("{", "utf-8")
    target = tmp_path / "all.html"
    found = run("report", str(tmp_path), "--output", str(target))
    assert found.exit_code == 0
    assert "onnx/digits" in found.output and "onnx/letters" in found.output
    assert "damaged" in found.output
    assert "onnx/letters" in target.read_text("utf-8")


def test_two_runs_are_compared(tmp_path: Path) -> None:
    one, other = journal(tmp_path / "a", 0.895), journal(tmp_path / "b", 0.5, 0.899)
    target = tmp_path / "both.html"
    found = run("report", str(one), str(other), "--output", str(target))
    assert found.exit_code == 0, found.output
    assert "1 op is different" in found.output
    assert "a vs. b" in target.read_text("utf-8")
    raw = json.loads(run("report", str(one), str(other), "--json").stdout)
    figures = {item["name"]: item for item in raw["figures"]}
    assert figures["accuracy"]["better"] == "second"
    assert figures["evaluations"]["better"] == "first"
    assert [item["name"] for item in raw["ops"]] == ["conv1"]


def test_speeds_that_overlap_are_no_difference() -> None:
    def of(speed: float, low: float, high: float) -> Report:
        result = {"speed": speed, "speed_range": [low, high]}
        return Report("n", "onnx", result, None, (), (OpRow("a", "Add", "int8"),))

    def better(one: Report, other: Report) -> str:
        return {f.name: f.better for f in versus(one, other).figures}["speed, times FP32"]

    assert better(of(2.0, 1.5, 2.5), of(2.4, 2.2, 2.6)) == ""
    assert better(of(2.0, 1.9, 2.1), of(2.4, 2.2, 2.6)) == "second"


def test_unlike_runs_are_told_apart() -> None:
    one = Report("n", "onnx", {}, None, (), (), {"model hash": "a", "CPU": "x"})
    other = Report("n", "onnx", {}, None, (), (), {"model hash": "b", "CPU": "y"})
    notes = " ".join(versus(one, other).notes)
    assert "different models" in notes and "different CPUs" in notes


def test_the_page_can_be_written_elsewhere_or_not(tmp_path: Path) -> None:
    folder = journal(tmp_path / "a", 0.895)
    assert run("report", str(folder), "--output", str(tmp_path / "x.html")).exit_code == 0
    refused = run("report", str(folder), "--output", str(tmp_path / "no" / "x.html"))
    assert refused.exit_code == 2
    assert "can't write the page" in refused.output


def test_a_better_trial_whose_model_was_never_saved_is_not_named(tmp_path: Path) -> None:
    """Killed between the line of the history and the model's file."""
    scores = iter([1.0, *[0.5] * 9])
    found = lpot.tune(
        onnx_models.mlp(),
        onnx_models.feeds(onnx_models.mlp()),
        lambda model: next(scores),
        workspace=tmp_path,
        measure_speed=False,
        progress=False,
        max_trials=1,
    )
    assert found.best is not None and found.baseline is not None
    for name in ("result.json", "report.json", "lock"):
        (tmp_path / name).unlink()
    history = History.open(tmp_path / "history.jsonl", History.read(found.history).fingerprint)
    ops = found.best.recipe.low_ops
    better = replace(
        found.best,
        number=2,
        recipe=found.best.recipe.with_float(ops[:1]),
        score=Score(0.999),
        met=True,
    )
    history.append(better)
    report = read_report(tmp_path)
    assert report.result["accuracy"] == found.accuracy
    assert any("trial 2 scored 0.999" in note for note in report.result["notes"])
