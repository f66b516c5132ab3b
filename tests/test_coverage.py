"""`make coverage` counts what workers did, however they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("coverage")
pytest.importorskip("xdist")

TESTS = Path(__file__).resolve().parent
SETTINGS = """
[run]
branch = true
source = counted
data_file = {folder}/data
parallel = true
patch = subprocess
"""
# What is registered last comes first at exit: coverage has no time to write then.
ENDS_AT_ONCE = """
import atexit, os
import counted
atexit.register(os._exit, 0)
def test_it():
    assert counted.sign(-3) == -1
"""


def test_a_worker_that_is_killed_at_its_exit_is_counted(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text(SETTINGS.format(folder=tmp_path))
    (tmp_path / "counted.py").write_text("def sign(x):\n    return -1 if x < 0 else 1\n")
    (tmp_path / "test_one.py").write_text(ENDS_AT_ONCE)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    paths = [str(tmp_path), str(TESTS), str(TESTS.parent / "src")]
    environment = {**ours, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    coverage = [sys.executable, "-m", "coverage"]
    settings = f"--rcfile={tmp_path / 'settings'}"
    suite = ["-m", "pytest", "-q", "-p", "conftest", "-n", "1", "test_one.py"]
    for words in (["run", settings, *suite], ["combine", settings], ["report", settings]):
        done = subprocess.run(
            [*coverage, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "counted.py" in done.stdout and "100%" in done.stdout
