"""`lpot benchmark` with a yaml, a tuning's workspace, modes and layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import lpot
from lpot.cli import cli
from lpot.core.cpu import probe
from lpot.demo import demo_data, demo_model_path

pytest.importorskip("onnxruntime")

DATA = demo_data()
QUICK = ("--iteration", "8", "--rounds", "8")
LOADER = "dataloader: {batch_size: 4, dataset: {dummy: {shape: [12, 1, 8, 8], label: true}}}"
YAML = f"""
model: {{name: digits, framework: onnxrt_qlinearops}}
evaluation:
  accuracy:
    metric: {{topk: 1}}
    {LOADER}
  performance: {{warmup: 1, iteration: 9, configs: {{intra_num_of_threads: 1}}}}
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["benchmark", *words])


def told(done: Result, status: int = 0) -> Any:
    assert done.exit_code == status, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tuning that was finished, with data and metric in its yaml."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "conf.yaml").write_text(YAML)
    calib = [DATA.calib_images[:50]]
    result = lpot.tune(
        str(demo_model_path()),
        calib,
        config=str(folder / "conf.yaml"),
        goal=lpot.Goal(absolute=1.0),
        really=True,
        workspace=folder / "work",
        measure_speed=False,
    )
    assert result.workspace is not None
    return result.workspace


def test_yaml_says_how(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text(YAML)
    found = told(run(str(demo_model_path()), "--config", str(tmp_path / "conf.yaml"), "--json"))
    assert found["batch_size"] == 4, "the accuracy loader's batches are timed"
    assert found["models"][0]["timing"]["count"] == 9
    assert found["settings"]["threads"] == 1 and found["settings"]["warmup"] == 1
    words = (str(demo_model_path()), str(tmp_path / "conf.yaml"), "--iteration", "3", "--json")
    assert told(run(*words))["models"][0]["timing"]["count"] == 3, "flags win"


def test_deploy_yaml_alone(workspace: Path) -> None:
    for place in (workspace, workspace / "deploy.yaml"):
        found = told(run(str(place), "--json"))
        assert [model["label"] for model in found["models"]] == ["best_model.onnx"]
        assert found["models"][0]["timing"]["count"] == 9 and found["batch_size"] == 4


def test_fp32_against_a_workspace(workspace: Path) -> None:
    found = told(run(str(demo_model_path()), str(workspace), *QUICK, "--json"))
    assert [model["label"] for model in found["models"]] == ["digits.onnx", "best_model.onnx"]
    assert found["models"][1]["comparison"]["ratio"] > 0


def test_accuracy_mode(workspace: Path) -> None:
    words = (str(demo_model_path()), str(workspace), "--mode", "accuracy")
    found = told(run(*words, "--json"))
    assert set(found["models"]) == {"digits.onnx", "best_model.onnx"}
    assert all(0 <= score["accuracy"] <= 1 for score in found["models"].values())
    done = run(*words)
    assert "accuracy" in done.stdout and "best_model.onnx" in done.stdout


@pytest.mark.skipif(probe().cores < 2, reason="needs two cores")
def test_layouts() -> None:
    found = told(run(str(demo_model_path()), "--layouts", "1x2,2x1", *QUICK, "--json"))
    assert [model["label"] for model in found["models"]] == ["digits.onnx 1x2", "digits.onnx 2x1"]
    assert len(found["models"][1]["parts"]) == 2


@pytest.mark.skipif(probe().cores < 2, reason="needs two cores")
def test_status_says_that_an_instance_fell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weakling.py").write_text(
        "import os\nfrom pathlib import Path\nfrom lpot.core.batch import InputSpec\n"
        "def make():\n"
        "    try:\n        Path('first').touch(exist_ok=False)\n"
        "    except FileExistsError:\n        call = lambda feed: feed\n"
        "    else:\n        call = lambda feed: os._exit(9)\n"
        "    return call, [InputSpec('x', 'float32', (1, 2))]\n"
    )
    words = ("weakling:make", "--instances", "2", "--cores-per-instance", "1", *QUICK)
    done = run(*words)
    assert done.exit_code == 2
    assert "1 of 2" in done.stdout and "status 9" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("deploy.yaml",), "does not name a model"),
        (("net.onnx", "--layouts", "2by1"), "INSTANCESxCORES"),
        (("net.onnx", "--mode", "accuracy"), "metric"),
        (("net.onnx", "--instances", "4000"), "4000"),
        (("net.onx",), "did you mean 'net.onnx'"),
        (("net.onnx", "--profile", "--runtimes"), "cannot be combined with --profile"),
        (("net.onnx", "net.onnx", "--runtimes"), "expected one"),
    ],
)
def test_wrong_calls(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(demo_model_path().read_bytes())
    (tmp_path / "other.yaml").write_text("model: {name: x, framework: onnx}\n")
    done = run(*("other.yaml" if word == "deploy.yaml" else word for word in words))
    assert done.exit_code == 2 and said in done.stderr, done.stderr
