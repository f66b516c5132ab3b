"""The command as a process of its own: Ctrl-C once and twice, and a real terminal."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnx_models
from patience import PATIENCE, wait_until

MODULE = """
import os, pathlib
import onnx_models, patience
data = onnx_models.feeds(onnx_models.mlp(layers=4))
count = 0
def judge(given):  # stays in the evaluation that is named, until the file `go` is made
    global count
    count += 1
    pathlib.Path(f"evaluation{count}").touch()
    if count == int(os.environ["STAYS_IN"]):
        patience.wait_until(pathlib.Path("go").exists)
    return 1.0 if count == 1 else 0.5 + count / 100
"""
TESTS = Path(__file__).resolve().parent
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "judge.py").write_text(MODULE)
    onnx.save(onnx_models.mlp(layers=4), str(tmp_path / "net.onnx"))
    return tmp_path


@pytest.fixture
def start(here: Path) -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def call(stays_in: int, **streams: Any) -> subprocess.Popen[str]:
        """The command, which has come to that evaluation."""
        words = [sys.executable, "-m", "lpot.cli", "tune", "--model", "net.onnx"]
        words += ["--calib", "judge:data", "--eval", "judge:judge", "--no-speed"]
        words += ["--strategy", "random", "--max-trials", "40", "--workspace", "ws"]
        paths = os.pathsep.join((str(TESTS), str(TESTS.parent / "src")))
        environment = {**os.environ, "PYTHONPATH": paths, "LPOT_THREADS": "1"}
        environment |= {"TERM": "xterm-256color", "COLUMNS": "100", "STAYS_IN": str(stays_in)}
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **streams}
        for path in here.glob("evaluation*"):
            path.unlink()
        begun.append(subprocess.Popen(words, cwd=here, env=environment, **given))
        wait_until((here / f"evaluation{stays_in}").exists, begun[-1])
        return begun[-1]

    yield call
    for process in begun:
        process.kill()
        process.wait()


def interrupt(process: subprocess.Popen[str]) -> str:
    """Ctrl-C, and what is said up to the line that answers it."""
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = ""
    while "stopping after this trial" not in said:
        line = process.stderr.readline()
        assert line, f"it ended without a word: {said}"
        said += line
    return said


def trials_of(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "trial"]


def test_ctrl_c_once_ends_the_trial_and_keeps_the_best(here: Path, start: Start) -> None:
    process = start(3)
    interrupt(process)
    (here / "go").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert out.startswith("interrupted: bar missed, best effort")
    assert "Run the same command again to resume." in out
    assert (here / "ws" / "best_model.onnx").is_file()
    assert len(trials_of(here / "ws" / "history.jsonl")) == 2  # the one in flight was finished


def test_ctrl_c_twice_stops_at_once_and_history_is_whole(here: Path, start: Start) -> None:
    process = start(3)
    interrupt(process)
    assert process.poll() is None  # the trial in flight goes on
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "error: stopped." in err and "Traceback" not in err and out == ""
    assert len(trials_of(here / "ws" / "history.jsonl")) == 1
    assert (here / "ws" / "best_model.onnx").is_file()
    again = start(1)
    err = interrupt(again)
    (here / "go").touch()
    err += again.communicate(timeout=PATIENCE)[1]
    assert "baseline and 1 trial(s) are known" in err and "recalled" in err


def test_live_view_on_a_terminal(here: Path, start: Start) -> None:
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    process = start(4, stderr=slave)
    os.close(slave)
    process.send_signal(signal.SIGINT)
    (here / "go").touch()
    seen = b""
    while select.select([master], [], [], PATIENCE)[0]:
        try:
            block = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        seen += block
    os.close(master)
    out, _ = process.communicate(timeout=PATIENCE)
    text = seen.decode()
    assert process.returncode == 130
    assert "\x1b[?25l" in text and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "━" in text and "best so far: trial" in text and "of at most 40" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert re.search(r"trial +accuracy +drop +bar +FP32 ops +time", plain)
    assert re.search(r" left, search at most \d+:\d\d", plain)
    assert "\x1b" not in out and out.startswith("interrupted: bar missed")


def test_a_closed_pipe_is_no_error(here: Path) -> None:
    words = f"{sys.executable} -m lpot.cli schema | head -n 1"
    paths = os.pathsep.join((str(TESTS), str(TESTS.parent / "src")))
    done = subprocess.run(
        words,
        shell=True,
        cwd=here,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.stdout == "{\n" and "Traceback" not in done.stderr
