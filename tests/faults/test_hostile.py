"""eval_func that meddles with its process, and workspaces that change under a tuning."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from faults.conftest import Script
from lpot.core.errors import LpotError, WorkspaceError

TRIALS = 4


def slowly(*values: Any) -> list[Any]:
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def search(workspace: Path, act: Callable[[int], Any] = lambda call: None) -> lpot.Result:
    """Some trials, none of which meets the bar; `act` comes with each evaluation, from 1."""
    model = onnx_models.mlp(layers=3, width=8)
    scores = iter([2.0, 0.3, 0.6, 0.5, 0.9])
    calls = iter(range(1, 99))

    def evaluate(given: Any) -> float:
        act(next(calls))
        return next(scores)

    return lpot.tune(
        model,
        onnx_models.feeds(model),
        evaluate,
        strategy="random",
        max_trials=TRIALS,
        workspace=workspace,
        measure_speed=False,
    )


# -- a process that eval_func has spoilt -----------------------------------------------------------


def close_files(call: int) -> None:
    os.closerange(3, 256)


def reuse_numbers(call: int) -> None:
    """What was open is closed, and its numbers stand for files of somebody else."""
    if call == 2:
        os.closerange(3, 256)
        for _ in range(40):
            os.open(os.devnull, os.O_RDONLY)


def lose_folder(call: int) -> None:
    gone = tempfile.mkdtemp()
    os.chdir(gone)
    Path(gone).rmdir()


def forget_environment(call: int) -> None:
    os.environ.clear()


def take_signals(call: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


def close_streams(call: int) -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def be_strict(call: int) -> None:
    np.seterr(all="raise")
    warnings.simplefilter("error")
    sys.setrecursionlimit(150)


def few_files(call: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def fork_many(call: int) -> None:
    if call == 2:
        for _ in range(50):
            if os.fork() == 0:
                signal.pause()
                os._exit(0)


APART = [
    close_files,
    lose_folder,
    forget_environment,
    take_signals,
    close_streams,
    be_strict,
    few_files,
    fork_many,
]


def all_at_once(call: int) -> None:
    for act in APART:
        act(call)


ACTS = [reuse_numbers, *slowly(all_at_once, *APART)]
SCRIPT = """
import os, signal, sys
from pathlib import Path
os.setpgrp()
from faults import test_hostile
act = getattr(test_hostile, sys.argv[1])
workspace = Path(sys.argv[2])
result = test_hostile.search(workspace, act)
again = test_hostile.search(workspace)  # the lock was given back
told = [trial.state.name for trial in result.trials], result.path, again.path
os.write(1, repr(told).encode())
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.killpg(0, signal.SIGTERM)
"""


@pytest.mark.parametrize("act", ACTS, ids=lambda act: getattr(act, "__name__", None))
def test_a_process_that_eval_func_has_spoilt(
    act: Callable[[int], None], tmp_path: Path, script: Script
) -> None:
    workspace = tmp_path / "ws"
    done = script(SCRIPT, act.__name__, workspace, LPOT_CACHE=str(tmp_path / "cache"))
    best = workspace / "best_model.onnx"
    assert done.stdout == repr((["DONE"] * TRIALS, best, best)), done.stderr
    assert lpot.load(best).recipe is not None


def test_a_mask_that_leaves_files_unreadable(tmp_path: Path) -> None:
    """What was made is of use to who made it."""
    workspace, before = tmp_path / "ws", os.umask(0o777)
    os.umask(before)
    try:
        search(workspace, lambda call: os.umask(0o777))
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o600 for file in workspace.iterdir()}
    assert set(modes.values()) == {0o600}, modes
    assert "best_model.onnx" in modes and "report.html" in modes


# -- a workspace that changes ----------------------------------------------------------------------


def test_a_link_that_is_turned_to_another_folder(tmp_path: Path) -> None:
    ours, theirs, link = tmp_path / "ours", tmp_path / "theirs", tmp_path / "link"
    ours.mkdir(), theirs.mkdir()
    link.symlink_to(ours)
    (theirs / "history.jsonl").write_text("of somebody else\n")

    def turn(call: int) -> None:
        if call == 3:
            link.unlink()
            link.symlink_to(theirs)

    result = search(link, turn)
    assert result.path == ours / "best_model.onnx" and lpot.load(result.path).recipe is not None
    assert [file.name for file in theirs.iterdir()] == ["history.jsonl"]
    assert (theirs / "history.jsonl").read_text() == "of somebody else\n"


def test_a_workspace_that_is_deleted(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    result = search(workspace, lambda call: shutil.rmtree(workspace) if call == 3 else None)
    assert "can't write the history" in result.stopped
    assert result.model is not None and len(result.trials) == 2


def full_disk(call: int) -> None:
    if call == 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """Files can't grow beyond a size: what is written whole stays as it was."""
    workspace = tmp_path / "ws"
    try:
        result = search(workspace, full_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert "File too large" in result.stopped and result.model is not None
    assert lpot.load(workspace / "best_model.onnx").recipe is not None
    again = search(workspace)
    assert again.path == workspace / "best_model.onnx"
    assert sum(trial.recalled for trial in again.trials) >= 1


PLACES = (
    "history.jsonl",
    "result.json",
    "report.json",
    "report.html",
    "deploy.yaml",
    "best_model.onnx",
    "best_model.onnx.card.json",
    "lock",
    "advice-*",
    "observations-*",
)


@pytest.mark.parametrize("kind", ["pipe", *slowly("device", "link", "loop", "folder")])
@pytest.mark.parametrize("name", PLACES)
def test_a_file_that_has_become_something_else(tmp_path: Path, name: str, kind: str) -> None:
    """Replaced, or told by name; never waited for, never followed for writing."""
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    search(workspace)
    (place,) = workspace.glob(name)
    place.unlink()
    outside.write_text("not of lpot\n")
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to({"device": "/dev/zero", "link": outside, "loop": place}[kind])
    signal.alarm(60)  # ends the test run, rather than hang
    try:
        result = search(workspace)
    except WorkspaceError as error:
        assert name in str(error)
    else:
        if result.path is None:
            assert name in "".join(result.notes)
        else:
            assert lpot.load(result.path).recipe is not None
    finally:
        signal.alarm(0)
    if name not in ("history.jsonl", "lock"):  # which are opened, and may be links
        assert outside.read_text() == "not of lpot\n"


def test_damage_never_reads_without_end(tmp_path: Path) -> None:
    from lpot.core.files.history import History
    from lpot.core.files.untrusted import read_json

    link = tmp_path / "x.json"
    link.symlink_to("/dev/zero")
    for read in (lambda: read_json(link, "mend it"), lambda: History.read(link)):
        with pytest.raises(LpotError, match=r"x\.json"):
            read()
