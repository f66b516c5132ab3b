"""Workspaces of an older version are read as if they were written today (make.py says how)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")

import lpot
from formats.make import case
from lpot.backends import get_backend
from lpot.core.cpu import TOLERANCE
from lpot.core.files.history import History
from lpot.core.files.store import load_observations, save_observations
from lpot.core.recipe import Recipe
from lpot.core.repairs import Repairs
from lpot.jobs.recover import recover
from lpot.jobs.report.read import read_report
from lpot.report.html import page

HERE = Path(__file__).parent
SMOOTHED = Repairs(bias_correction=True, smoothing=0.8)
REPAIRS = {
    "onnx": SMOOTHED,
    "pytorch": Repairs(tensor_smoothing=True),
    "tensorflow": SMOOTHED,
}
BEST = {"onnx": "best_model.onnx", "pytorch": "checkpoint", "tensorflow": "best_model.pb"}
PACKAGES = {"onnx": "onnx", "pytorch": "torch", "tensorflow": "tensorflow"}
NEAR = 0.9  # what the evaluation gave then was 0.96; without SmoothQuant it is less than 0.8

everywhere = pytest.mark.parametrize("framework", REPAIRS)


@pytest.fixture
def workspace(framework: str, tmp_path: Path) -> Path:
    pytest.importorskip(PACKAGES[framework])
    return Path(shutil.copytree(HERE / framework, tmp_path / framework))


def native(model: Any) -> Any:
    return model.native if hasattr(model, "native") else model


@pytest.fixture
def holds(framework: str, caplog: pytest.LogCaptureFixture) -> Callable[[float], bool]:
    """The files were made for a CPU with VNNI: where sums overflow, that is said instead."""

    def check(score: float) -> bool:
        warned = [text for text in caplog.messages if "use all 8 bits" in text]
        caplog.clear()
        overflows = get_backend(framework).worst_error("MatMul") > TOLERANCE
        return bool(warned) == overflows and (overflows or score > NEAR)

    return check


@everywhere
def test_recipes_and_journals(framework: str, workspace: Path) -> None:
    (trial,) = History.read(workspace / "history.jsonl").trials
    assert trial.recipe.repairs == REPAIRS[framework]
    written = [json.loads(line) for line in (workspace / "history.jsonl").read_text().splitlines()]
    assert trial.recipe.digest == written[-1]["digest"]  # so that resuming recalls it
    (advice,) = workspace.glob("advice-*.json")
    assert Recipe.from_json(json.loads(advice.read_text())).digest == trial.recipe.digest
    assert trial.recipe.to_json() == written[-1]["recipe"]


@everywhere
def test_statistics_rebuild_the_trial(
    framework: str, workspace: Path, holds: Callable[[float], bool]
) -> None:
    model, _, score = case(framework)
    assert holds(score(native(recover(model, workspace, 1))))
    (path,) = workspace.glob("observations-*.npz")
    save_observations(path, load_observations(path))  # and as they are written today
    assert holds(score(native(recover(model, workspace, 1))))


@everywhere
def test_saved_models(framework: str, workspace: Path, holds: Callable[[float], bool]) -> None:
    model, _, score = case(framework)
    needs = {"module": model} if framework == "pytorch" else {}
    found = lpot.load(workspace / BEST[framework], **needs)
    assert holds(score(native(found)))


def test_reports(tmp_path: Path) -> None:
    raw = json.loads((HERE / "onnx" / "report.json").read_text())
    raw["ops"][1]["harm"] = 0.25  # what sensitivity was called there
    (tmp_path / "report.json").write_text(json.dumps(raw))
    report = read_report(tmp_path / "report.json")
    assert report.ops[1].sensitivity == 0.25
    assert page(report)
