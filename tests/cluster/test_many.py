"""Many models × goals × targets from one file: shared, resumed, and none costs the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")

import onnx
import psutil
from click.testing import CliRunner, Result

from cluster.conftest import Nodes
from lpot.cli import cli
from lpot.config.mistakes import ConfigMistakes
from lpot.config.schema_matrix import load_matrix
from patience import PATIENCE, wait_until
from search import scoring


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(scoring.net().model, tmp_path / "net.onnx")
    (tmp_path / "marks").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    return tmp_path


def write(here: Path, **changes: Any) -> str:
    model = {"model": "net.onnx", "calib": "cluster.many_parts:calib"}
    score = "cluster.many_parts:score"
    matrix = {
        "workspace": str(here / "runs"),
        "goals": ["10%", "1%"],
        "measure_speed": False,
        "models": [{"name": "a", "eval": score, **model}, {"name": "b", "eval": score, **model}],
        **changes,
    }
    (here / "matrix.yaml").write_text(json.dumps(matrix))  # which is yaml, too
    return "matrix.yaml"


def call(path: str) -> tuple[Result, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["tune-all", path, "--json"])
    return done, json.loads(done.stdout) if done.exit_code != 2 else {}


def count(here: Path, word: str) -> int:
    path = here / "marks" / word
    return len(path.read_text()) if path.exists() else 0


def test_calibration_and_fp32_are_shared_and_the_whole_is_resumed(here: Path) -> None:
    done, found = call(write(here))
    assert done.exit_code == 0, done.output
    assert len(found["cells"]) == 4 and all(
        cell["result"]["met"] for cell in found["cells"].values()
    )
    assert count(here, "read") == 2  # once for each model
    assert count(here, "fp32") == 2
    assert "10%" in Path(found["page"]).read_text()
    before = count(here, "low")
    again, _ = call("matrix.yaml")
    assert again.exit_code == 0 and "4 of 4 tunings are done already" in again.stderr
    assert count(here, "low") == before
    more, found = call(write(here, goals=["10%", "1%", "5%"]))
    assert more.exit_code == 0 and len(found["cells"]) == 6
    assert "4 of 6 tunings are done already" in more.stderr


@pytest.mark.slow
def test_a_model_that_fails_or_crashes_costs_no_other(here: Path) -> None:
    parts = {"model": "net.onnx", "calib": "cluster.many_parts:calib"}
    models = [
        {"name": "crashes", "eval": "cluster.many_parts:crashing", **parts},
        {"name": "missing", "model": "gone.onnx"},
        {"name": "sound", "eval": "cluster.many_parts:score", **parts},
    ]
    done, _ = call(write(here, models=models, workers=2))
    assert done.exit_code == 2
    state = json.loads((here / "runs" / "matrix.json").read_text())
    assert "SIGSEGV" in state["crashes · 10% · this"]["error"]
    assert state["crashes · 1% · this"]["result"]["met"]  # another process went on
    assert "gone.onnx" in state["missing · 1% · this"]["error"]
    assert state["sound · 1% · this"]["result"]["met"]
    again, _ = call("matrix.yaml")  # what failed is tried again, and nothing else
    assert again.exit_code == 2 and "3 of 6" in again.stderr


@pytest.mark.slow
def test_a_budget_that_is_over_leaves_the_rest_for_the_next_time(here: Path) -> None:
    done, found = call(write(here, timeout=0.01, workers=1))
    assert done.exit_code == 3
    open_cells = [name for name, cell in found["cells"].items() if cell is None]
    assert open_cells and all(name.startswith("b") for name in open_cells)
    done, found = call(write(here))
    assert done.exit_code == 0 and None not in found["cells"].values()


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_however_it_ends_no_row_is_left_behind(here: Path, number: int, status: int) -> None:
    """The signal goes to the parent alone, as `docker stop` and `kill` send it."""
    model = {"model": "net.onnx", "calib": "cluster.many_parts:calib"}
    models = [{"name": "a", "eval": "cluster.many_parts:slow", **model}]
    path = write(here, models=models, goals=["10%"])
    slow = here / "marks" / "slow"
    slow.touch()
    call_it = [sys.executable, "-m", "lpot.cli", "tune-all", path]
    parent = subprocess.Popen(
        call_it,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # A shell starts what is to run in the background with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(lambda: count(here, "sleeping") == 1)
    (row,) = psutil.Process(parent.pid).children()
    parent.send_signal(number)
    if number == signal.SIGINT:  # it waits for the trial in flight; the second one does not
        time.sleep(1)
        parent.send_signal(number)
    assert parent.wait(PATIENCE) == status
    row.wait(PATIENCE)
    slow.unlink()
    done, found = call(path)
    assert done.exit_code == 0 and found["cells"]["a · 10% · this"]["result"]["met"]


def test_mistakes_are_told_with_their_lines(here: Path) -> None:
    (here / "m.yaml").write_text("models:\n  - {name: a, modl: x}\nworkers: 0\n")
    done = CliRunner().invoke(cli, ["tune-all", "m.yaml"])
    assert done.exit_code == 2
    assert "m.yaml:2" in done.output and "did you mean 'model'" in done.output
    assert "m.yaml:3" in done.output


def test_names_must_differ(here: Path) -> None:
    twice = [{"name": "a", "model": "net.onnx"}] * 2
    done, _ = call(write(here, models=twice))
    assert done.exit_code == 2 and "twice" in done.output


@pytest.mark.slow
@pytest.mark.parametrize("names", [("net/1", "net?1"), ("Net", "net")])
def test_names_that_come_to_one_folder_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    models = [{"name": name, "model": "net.onnx"} for name in names]
    path = tmp_path / "matrix.yaml"
    path.write_text(json.dumps({"models": models}))
    with pytest.raises(ConfigMistakes, match="would share a folder"):
        load_matrix(path)


def test_the_same_file_on_ray(here: Path, nodes: Nodes) -> None:
    nodes.add()
    path = write(here, executor="ray", address=nodes.address, workers=2)
    done, found = call(path)
    assert done.exit_code == 0, done.output
    assert all(cell["result"]["met"] for cell in found["cells"].values())
    assert count(here, "read") == 2
