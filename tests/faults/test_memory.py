"""Long searches and long calibrations take no more memory than short ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

DRIVER = Path(__file__).with_name("memory_driver.py")
NEEDS = {"onnx": "onnxruntime", "pytorch": "torch", "tensorflow": "tensorflow"}
WARM = 30  # trials, after which caches are full


def measured(what: str, framework: str, count: int, folder: Path, environment: Any) -> Any:
    pytest.importorskip(NEEDS.get(framework, "numpy"))
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not tell what a process holds")
    done = subprocess.run(
        [sys.executable, str(DRIVER), what, framework, str(folder / "ws"), str(count)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("framework", NEEDS)
def test_two_hundred_trials_take_the_memory_of_fifty(
    framework: str, tmp_path: Path, environment: Any
) -> None:
    found = measured("trials", framework, 200, tmp_path, environment)
    assert len(found) == 200
    first, last = median(found[WARM : WARM + 50]), median(found[-50:])
    assert last <= 1.03 * first, (first, last)


def test_a_slice_of_it(tmp_path: Path, environment: Any) -> None:
    found = measured("trials", "onnx", 70, tmp_path, environment)
    first, last = median(found[WARM : WARM + 20]), median(found[-20:])
    assert last <= 1.03 * first, (first, last)


@pytest.mark.parametrize(
    "framework",
    ["onnx", *(pytest.param(n, marks=pytest.mark.slow) for n in ("pytorch", "tensorflow"))],
)
def test_calibration_is_flat_from_8_to_128_batches(
    framework: str, tmp_path: Path, environment: Any
) -> None:
    """The data are 120 MiB more; histograms are all that stays of them."""
    few, many = (
        measured("calibrate", framework, count, tmp_path, environment) for count in (8, 128)
    )
    assert many <= few * 1.03 + 8, (few, many)


@pytest.mark.slow
def test_a_thousand_trials_of_ten_thousand_ops_do_not_slow_down(
    tmp_path: Path, environment: Any
) -> None:
    steps = measured("long", "toy", 1000, tmp_path, environment)
    assert median(steps[-100:]) <= 1.5 * median(steps[50:150])
