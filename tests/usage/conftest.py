"""`lpot tune conf.yaml --model FILE`, and nothing else: no Python of the user's."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lpot.cli import cli

Tune = Callable[..., dict[str, Any]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def tune(here: Path) -> Tune:
    """What `lpot tune --json` tells; the yaml is given as text."""

    def run(
        conf: str, model: str | Path = "net.onnx", *options: str, speed: bool = False
    ) -> dict[str, Any]:
        (here / "conf.yaml").write_text(conf, "utf-8")
        words = ["tune", "conf.yaml", "--model", str(model), "--json", "--progress", "none"]
        words += [] if speed else ["--no-speed"]
        done = CliRunner().invoke(cli, [*words, *options])
        assert done.exit_code in (0, 3), done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return run


@pytest.fixture
def refuse(here: Path) -> Callable[..., str]:
    """The error of a tuning that can't begin."""

    def run(conf: str, model: str | Path = "net.onnx", *options: str) -> str:
        (here / "conf.yaml").write_text(conf, "utf-8")
        words = ["tune", "conf.yaml", "--model", str(model), "--progress", "none", "--no-speed"]
        done = CliRunner().invoke(cli, [*words, *options])
        assert done.exit_code == 2, f"{done.exit_code}: {done.stdout}{done.stderr}"
        return done.stderr

    return run
