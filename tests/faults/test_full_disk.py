"""A disk that fills up while a search writes its files, in every framework."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FAULTS = Path(__file__).parent
NEEDS = {
    "onnx": "onnxruntime",
    "pytorch": "safetensors",
    "tensorflow": "tensorflow",
    "mxnet": "mxnet",
}


def filled(framework: str, times: int, folder: Path, environment: Any) -> list[int]:
    pytest.importorskip(NEEDS[framework])
    done = subprocess.run(
        [sys.executable, str(FAULTS / "full_disk_driver.py"), framework, folder, "7", str(times)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[int] = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == times
    return found


@pytest.mark.slow
@pytest.mark.parametrize("framework", NEEDS)
def test_a_campaign(framework: str, tmp_path: Path, environment: Any) -> None:
    known = filled(framework, 20, tmp_path, environment)
    assert len(set(known)) > 1, "the disk was full at several moments"


@pytest.mark.parametrize("framework", ["onnx", "pytorch"])
def test_a_slice(framework: str, tmp_path: Path, environment: Any) -> None:
    filled(framework, 2, tmp_path, environment)
