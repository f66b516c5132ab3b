"""`--dry-run`: what is wrong is found before an evaluation is spent, and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_models
from lpot.config import load
from lpot.core.errors import EvaluationError
from lpot.core.evaluation.eval_func import check_function
from lpot.core.files.workspace import Workspace
from lpot.jobs.tune import preflight as room
from lpot.jobs.tune.preflight import Preflight, preflight
from lpot.jobs.tune.quantize import Request, quantize


def refuse(model: Any) -> float:
    raise AssertionError("a dry run must not evaluate")


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    model = onnx_models.cnn()
    return Request(
        config=load({"model": {"name": "cnn"}}),
        model=model,
        calib=onnx_models.feeds(model),
        eval_func=refuse,
        workspace=tmp_path / "deep" / "ws",
        output=tmp_path / "out" / "best.onnx",
    )


def states(found: Preflight) -> dict[str, str]:
    return {check.name: check.state for check in found.checks if check.name}


def told(found: Preflight, name: str) -> str:
    return next(check.text for check in found.checks if check.name == name)


def test_all_is_well(request_: Request, tmp_path: Path) -> None:
    found = preflight(request_)
    assert found.ok
    assert set(states(found)) == {
        *("model", "data", "evaluation", "ops", "workspace", "output", "memory", "history"),
        "effort",
    }
    assert "4 batches, 8 samples a batch" in told(found, "data")
    assert "can be low precision" in told(found, "ops")
    assert found.evaluations is not None and 3 <= found.evaluations <= 7
    assert f"at most {found.evaluations} evaluations" in told(found, "effort")
    assert list(tmp_path.iterdir()) == []  # nothing was written


def test_ops_that_stay_are_told_with_their_reason(request_: Request) -> None:
    model = onnx_models.transformer()
    found = preflight(replace(request_, model=model, calib=onnx_models.feeds(model)))
    reasons = [check.text for check in found.checks if check.state == "note"]
    assert any("MatMul stays in FP32: both sides are activations" in text for text in reasons)


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        ({"calib": [np.zeros((2, 3, 9, 9), np.float32)]}, "data", "expects shape"),
        ({"calib": []}, "data", "empty"),
        ({"calib": None}, "data", "needs calibration data"),
        ({"eval_func": lambda model, other: 1.0}, "evaluation", "one model"),
        ({"eval_func": None, "metric": "topk"}, "evaluation", "without data"),
        ({"model": "nowhere.onnx"}, "model", "nowhere.onnx"),
        ({"output": Path("/proc/no/such.onnx")}, "output", "proc"),
    ],
)
def test_what_is_wrong_is_found(
    request_: Request, change: dict[str, Any], name: str, said: str
) -> None:
    found = preflight(replace(request_, **change))
    assert not found.ok
    assert states(found)[name] == "fail" and said in told(found, name)
    assert found.to_json()["ok"] is False


def test_nan_in_the_data_is_a_warning(request_: Request) -> None:
    batch = np.full((2, 3, 8, 8), np.nan, np.float32)
    found = preflight(replace(request_, calib=[batch]))
    assert any("NaN" in check.text for check in found.checks if check.state == "warn")


def test_nothing_to_evaluate_with(request_: Request) -> None:
    found = preflight(replace(request_, eval_func=None))
    assert found.ok and found.evaluations is None
    assert states(found)["evaluation"] == "warn"
    assert told(found, "effort").endswith("no evaluation")


def test_an_open_history_tells_the_time(request_: Request) -> None:
    request = replace(request_, eval_func=lambda model: 1.0, measure_speed=False)
    quantize(request)
    found = preflight(request)
    assert "has 1 trial" in told(found, "history") and found.seconds is not None
    other = onnx_models.mlp()
    changed = preflight(replace(request, model=other, calib=onnx_models.feeds(other)))
    assert "none yet" in told(changed, "history")
    assert any("holds the answer to another question" in check.text for check in changed.checks)


def test_a_workspace_in_use_is_told(request_: Request) -> None:
    assert request_.workspace is not None
    workspace = Workspace(request_.workspace)
    with workspace.lock():
        workspace.history.write_text("{}\n")
        assert states(preflight(request_))["history"] == "fail"
    assert states(preflight(request_))["history"] == "warn"  # it is no history of ours


@pytest.mark.parametrize(("available", "state"), [(0, "note"), (1, "warn"), (1 << 60, "ok")])
def test_memory(
    request_: Request, available: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = replace(room.probe(), available=available)
    monkeypatch.setattr(room, "probe", lambda: cpu)
    assert states(preflight(request_))["memory"] == state


def test_a_full_disk_is_told(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: usage)
    assert states(preflight(request_))["workspace"] == "fail"


@pytest.mark.parametrize("function", [lambda: 1, lambda a, b: 1, lambda *, model: 1, 3.0, "text"])
def test_functions_that_cant_be_called_with_a_model(function: Any) -> None:
    with pytest.raises(EvaluationError, match="one model"):
        check_function(function)


@pytest.mark.parametrize(
    "function", [lambda m: 1, lambda m, n=2: 1, lambda *m: 1, float, refuse, Preflight.to_json]
)
def test_functions_that_can(function: Any) -> None:
    check_function(function)


def test_output_must_not_be_the_model(request_: Request, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(request_.model, str(path))
    same = preflight(replace(request_, model=str(path), output=tmp_path / "." / "net.onnx"))
    assert states(same)["output"] == "fail" and "itself" in told(same, "output")
    below = preflight(replace(request_, output=path / "below.onnx"))
    assert states(below)["output"] == "fail" and "not a folder" in told(below, "output")
