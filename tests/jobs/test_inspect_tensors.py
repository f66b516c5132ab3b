"""FP32 against low precision, op by op, through the job and the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lpot.cli import cli
from lpot.core.errors import ConfigError, HistoryError
from lpot.core.recipe import OpKey
from lpot.core.results.tensors import EQUAL, Contrast, Glimpse, contrast
from lpot.demo import demo_data, demo_model_path
from lpot.jobs.inspect_tensors import compare_tensors, inspect_tensor
from lpot.jobs.tune.api import tune

KEY = OpKey("a", "Conv")


def of(exact: Any, low: Any) -> Contrast:
    found = contrast(KEY, "output", Glimpse.of(exact), Glimpse.of(low))
    assert found is not None
    return found


def test_decibels_and_worst_samples() -> None:
    exact = np.ones((4, 10))
    low = exact.copy()
    low[2] += 0.1
    low[3] += 0.01
    found = of(exact, low)
    assert found.sqnr == pytest.approx(10 * np.log10(1 / np.mean((low - exact) ** 2)))
    assert [number for number, _ in found.worst_samples][:2] == [2, 3]
    assert found.worst_samples[0][1] == pytest.approx(20.0)
    assert sum(found.fp32_counts) == sum(found.low_counts) == 40
    assert Contrast.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_equal_and_lost_tensors() -> None:
    same = of(np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3))
    assert same.sqnr == EQUAL and same.worst_samples == ()
    assert of(np.zeros(3), np.ones(3)).sqnr == -EQUAL
    half_lost = of(np.ones(4), np.array([1.0, 1.0, np.nan, np.inf]))
    assert half_lost.sqnr == pytest.approx(10 * np.log10(2), abs=1e-6)
    assert contrast(KEY, "output", Glimpse.of(np.ones(3)), Glimpse.of(np.ones(4))) is None
    assert contrast(KEY, "output", Glimpse.of(np.full(2, np.nan)), Glimpse.of(np.ones(2))) is None
    assert contrast(KEY, "output", Glimpse.of(np.ones(0)), Glimpse.of(np.ones(0))) is None


def test_large_tensors_are_thinned_out_over_all_samples() -> None:
    exact = np.random.default_rng(0).normal(size=(8, 40_000)).astype(np.float32)
    low = exact.copy()
    low[5] += 1.0
    found = of(exact, low)
    assert sum(found.fp32_counts) <= 65536
    assert found.worst_samples[0][0] == 5


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("tuned")
    data = demo_data()

    def score(model: Any) -> float:
        return 1.0

    tune(
        demo_model_path(),
        calib=[data.calib_images[:50]],
        evaluate=score,
        workspace=folder,
        measure_speed=False,
        max_trials=1,
    )
    return folder


def batches() -> list[np.ndarray]:
    return [demo_data().calib_images[:20], demo_data().calib_images[20:40]]


def test_the_worst_op_comes_first(workspace: Path) -> None:
    found = compare_tensors(demo_model_path(), workspace, batches())
    outputs = [item for item in found if item.what == "output"]
    # Plain INT8 ruins what comes out of `mix`: that is what the demo is about.
    assert outputs[0].op.name in ("fc2", "mix", "relu5")
    assert outputs[0].sqnr < 15 < outputs[-1].sqnr
    assert {"conv1", "conv2"} <= {item.op.name for item in found if item.what == "weight"}
    report = json.loads((workspace / "report.json").read_text())
    by_name = {row["name"]: row["sqnr"] for row in report["ops"]}
    assert by_name["conv1"] > 30
    assert report["tensors"][0]["op"][0] in ("fc2", "mix", "relu5")


def test_a_saved_model_is_as_good_as_its_workspace(workspace: Path) -> None:
    one = compare_tensors(demo_model_path(), workspace, batches(), ops=["conv1"])
    other = compare_tensors(
        demo_model_path(), workspace / "best_model.onnx", batches(), ops=["conv1"]
    )
    assert one == other and len(one) == 2


def test_mistakes_are_named(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'conv1'"):
        compare_tensors(demo_model_path(), workspace, batches(), ops=["cnv1"])
    with pytest.raises(HistoryError, match="no such workspace or model"):
        compare_tensors(demo_model_path(), tmp_path / "none", batches())
    with pytest.raises(HistoryError, match="the folder is empty"):
        compare_tensors(demo_model_path(), tmp_path, batches())
    with pytest.raises(HistoryError, match="there is no trial 9"):
        compare_tensors(demo_model_path(), workspace, batches(), trial=9)


def test_in_the_words_of_the_original(workspace: Path, tmp_path: Path) -> None:
    model = str(demo_model_path())
    found = inspect_tensor(model, batches(), ["conv1"], [1, 2], "all", save_to_disk=tmp_path)
    first, second = found["activation"]
    assert first["conv1"]["conv1"].shape == second["conv1"]["conv1"].shape
    assert first["conv1"]["conv1"].shape[0] == 20
    assert found["weight"]["conv1"]["conv1"].ndim == 4
    with np.load(tmp_path / "inspect_result.npz") as saved:
        np.testing.assert_array_equal(saved["activation/2/conv1"], second["conv1"]["conv1"])
    low = inspect_tensor(model, batches(), ["conv1"], against=workspace)["activation"][0]
    assert not np.array_equal(low["conv1"]["conv1"], first["conv1"]["conv1"])
    with pytest.raises(ConfigError, match="the loader ended"):
        inspect_tensor(model, batches(), ["conv1"], [5])
    with pytest.raises(ConfigError, match="expected activation"):
        inspect_tensor(model, batches(), inspect_type="colour")  # type: ignore[arg-type]


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_digits", raising=False)
    code = "from lpot.demo import demo_data\ncalib = [demo_data().calib_images[:20]]\n"
    (tmp_path / "my_digits.py").write_text(code)
    return tmp_path


def test_the_command(workspace: Path, here: Path) -> None:
    model = str(demo_model_path())
    words = ("inspect", model, "--tensors", "--against", str(workspace))
    words += ("--calib", "my_digits:calib")
    told = run(*words, "--output", "t.html")
    assert told.exit_code == 0, told.output
    assert "dB" in told.output and "conv1" in told.output
    assert "<svg" in (here / "t.html").read_text("utf-8")
    raw = json.loads(run(*words, "--json").stdout)
    assert raw["tensors"][0]["sqnr"] < 15
    for missing in (("inspect", model, "--tensors"), words[:5]):
        assert run(*missing).exit_code == 2
    alone = run("inspect", model, "--calib", "my_digits:calib")
    assert alone.exit_code == 2 and "can only be used with --tensors" in alone.output
