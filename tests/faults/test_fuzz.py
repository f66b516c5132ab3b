"""Files of every kind that is read, mutated: each is opened or refused by name, nothing else."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.conftest import child_environment, interpreter
from faults.fuzz_driver import KINDS

DRIVER = Path(__file__).with_name("fuzz_driver.py")
MANY = 500
# In a moment each; models of big frameworks take longer to open.
FEW = {
    "pb": 10,
    "saved_model.pb": 8,
    "keras": 8,
    "h5": 8,
    "best_configure.yaml": 15,
    "transformers config": 12,
    "png": 60,
    "jpeg": 60,
}
USUAL = 40
NEEDS = {
    "pb": "tensorflow",
    "saved_model.pb": "tensorflow",
    "keras": "tensorflow",
    "h5": "tensorflow",
    "safetensors": "torch",
    "lpot.json": "torch",
    "pruned folder": "torch",
    "best_configure.yaml": "torch",
    "best_model_weights.pt": "torch",
    "card of a folder": "torch",
    "transformers config": "transformers",
    "tokenizer.json": "tokenizers",
    "lease": "fsspec",
    "remote card": "fsspec",
    "mxnet symbol": "mxnet",
    "mxnet params": "mxnet",
}
# Passed over without a word: it is made anew, or has another place to be told.
SILENT = {
    "history",
    "matrix.json",
    "row of tune-all",
    "advice",
    "findings",
    "progress.json",
    "lock",
    "times",
    "lease",
    "remote card",
    "generation config",
    "rounded weights",
}


Found = dict[str, Any]


def need(kind: str) -> str:
    return NEEDS.get(kind, "onnxruntime")


def fuzzed(counts: dict[str, int], seed: int, folder: Path) -> dict[str, Found]:
    """What came of each kind, all in one process; of those behind a crash, nothing."""
    paths = os.pathsep.join((child_environment()["PYTHONPATH"], str(DRIVER.parent)))
    words = [str(word) for pair in counts.items() for word in pair]
    (python,) = {interpreter(need(kind)) for kind in counts}
    done = subprocess.run(
        [python, str(DRIVER), str(folder), str(seed), *words],
        env={**child_environment(), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=3000,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    lost = {"failed": [f"the process ended with {done.returncode}: {done.stderr[-2000:]}"]}
    return {kind: lines[at] if at < len(lines) else lost for at, kind in enumerate(counts)}


def check(kind: str, count: int, found: Found) -> None:
    assert found["failed"] == []
    assert found["unnamed"] == []
    assert found["refused"] + found["opened"] == count
    # A damaged card is passed over with a warning.
    assert found["refused"] + found["warnings"] or kind in SILENT, "no mutation did any damage"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_campaign(kind: str, tmp_path: Path) -> None:
    check(kind, MANY, fuzzed({kind: MANY}, 5, tmp_path)[kind])


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Found]]:
    """Of all kinds that need a package, which is imported once."""

    @functools.cache
    def made(package: str) -> dict[str, Found]:
        kinds = [kind for kind in KINDS if need(kind) == package]
        counts = {kind: FEW.get(kind, USUAL) for kind in kinds}
        return fuzzed(counts, 6, tmp_path_factory.mktemp("fuzz"))

    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_slice(kind: str, slices: Callable[[str], dict[str, Found]]) -> None:
    check(kind, FEW.get(kind, USUAL), slices(need(kind))[kind])
