"""What tests of faults share: a quick tuning in its own folder, scripts in fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lpot
import onnx_models
from lpot.core.limits import Watch
from patience import PATIENCE

TESTS = Path(__file__).resolve().parents[1]
Tune = Callable[..., lpot.Result]
Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of tunings here, none of which must outlive a power cut."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def tune(tmp_path: Path) -> Tune:
    """`lpot.tune` on a small MLP unless told otherwise; quick, quiet, in the test's own folder."""

    def call(model: Any = None, calib: Any = None, evaluate: Any = None, **options: Any) -> Any:
        model = onnx_models.mlp() if model is None else model
        calib = onnx_models.feeds(model) if calib is None else calib
        options = {"workspace": tmp_path / "ws", "measure_speed": False, **options}
        return lpot.tune(model, calib, evaluate, **options)

    return call


class Clock:
    """Time that passes when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that the limits of a run go by."""
    made = Clock()
    monkeypatch.setattr("lpot.jobs.tune.job.Watch", partial(Watch, clock=made))
    return made


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Run Python text in a fresh process, in the test's folder, with the makers importable."""

    def call(text: str, *args: Any, check: bool = True, **environment: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", text, *map(str, args)],
            cwd=tmp_path,
            env=child_environment(**environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if check and done.returncode:
            pytest.fail(f"the script ended with {done.returncode}:\n{done.stderr}")
        return done

    return call


@pytest.fixture
def environment() -> Callable[..., dict[str, str]]:
    return child_environment


def child_environment(**extra: str) -> dict[str, str]:
    paths = [str(TESTS), str(TESTS.parent / "src")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LPOT_THREADS": "1", **extra}


def interpreter(package: str) -> str:
    """MXNet has an environment of its own, which `make test` names."""
    known = os.environ.get("LPOT_MXNET_PYTHON") if package == "mxnet" else None
    if known is None:
        pytest.importorskip(package)
    return known or sys.executable
