"""kill -9 at random moments, in every framework, with trials here and in other processes.

No finished trial is lost, the best model can be loaded at every moment with the recipe it was made
by, and the rerun ends with the recipe that an undisturbed run finds.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from faults.conftest import interpreter

FAULTS = Path(__file__).parent
CAMPAIGNS = [
    ("onnx", "serial", 70),
    ("onnx", "process", 30),
    ("pytorch", "serial", 25),
    ("pytorch", "process", 15),
    ("tensorflow", "serial", 25),
    ("tensorflow", "process", 15),
    ("mxnet", "serial", 20),
]
NEEDS = {
    "onnx": "onnxruntime",
    "pytorch": "safetensors",
    "tensorflow": "tensorflow",
    "mxnet": "mxnet",
}


def killed(framework: str, executor: str, count: int, folder: Path, environment: Any) -> list[int]:
    driver = [interpreter(NEEDS[framework]), str(FAULTS / "kill_driver.py")]
    done = subprocess.run(
        [*driver, framework, executor, str(folder), "20", str(count)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == count
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "executor", "count"), CAMPAIGNS)
def test_a_campaign(
    framework: str, executor: str, count: int, tmp_path: Path, environment: Any
) -> None:
    known = killed(framework, executor, count, tmp_path, environment)
    assert len(set(known)) > 2, "the kills fell all over the run"


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_a_slice(framework: str, tmp_path: Path, environment: Any) -> None:
    """Of ONNX test_crash.py has more."""
    killed(framework, "serial", 2, tmp_path, environment)
