"""Files of every kind that is read, mutated: each is opened or refused by name, nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.fuzz_driver import KINDS

DRIVER = Path(__file__).with_name("fuzz_driver.py")
MANY = 500
# In a moment each; models of big frameworks take longer to open.
FEW = {
    "pb": 10,
    "saved_model.pb": 8,
    "keras": 8,
    "h5": 8,
    "onnx": 40,
    "best_configure.yaml": 15,
    "png": 60,
    "jpeg": 60,
}
USUAL = 40
NEEDS = {
    "pb": "tensorflow",
    "saved_model.pb": "tensorflow",
    "keras": "tensorflow",
    "h5": "tensorflow",
    "onnx": "onnxruntime",
    "safetensors": "safetensors",
    "lpot.json": "safetensors",
    "best_configure.yaml": "safetensors",
    "best_model_weights.pt": "safetensors",
    "card of a folder": "safetensors",
    "mxnet symbol": "mxnet",
    "mxnet params": "mxnet",
}


def fuzzed(kind: str, count: int, seed: int, folder: Path, environment: Any) -> None:
    pytest.importorskip(NEEDS.get(kind, "onnxruntime"))
    paths = os.pathsep.join((environment()["PYTHONPATH"], str(DRIVER.parent)))
    done = subprocess.run(
        [sys.executable, str(DRIVER), kind, str(folder), str(seed), str(count)],
        env={**environment(), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == []
    assert found["unnamed"] == []
    assert found["refused"] + found["opened"] == count
    # A damaged card is passed over with a warning, a damaged line of a history with a note.
    noticed = found["refused"] + found["warnings"]
    assert noticed or kind in ("history", "matrix.json"), "no mutation did any damage"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_campaign(kind: str, tmp_path: Path, environment: Any) -> None:
    fuzzed(kind, MANY, 5, tmp_path, environment)


@pytest.mark.parametrize("kind", KINDS)
def test_a_slice(kind: str, tmp_path: Path, environment: Any) -> None:
    fuzzed(kind, FEW.get(kind, USUAL), 6, tmp_path, environment)
