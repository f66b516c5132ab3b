"""Folders that can't be written, that are full, that are taken, and paths nobody would choose."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx
import pytest

import lpot
import onnx_models
from lpot.core.errors import ConfigError, WorkspaceBusy, WorkspaceError
from lpot.core.files.history import History
from lpot.core.files.workspace import safe_name
from patience import PATIENCE, wait_until

OWNER = """
import sys, time, pathlib
import onnx_models, lpot
model = onnx_models.mlp()
def judge(given):
    pathlib.Path("started").touch()
    time.sleep(600)
    return 1.0
lpot.tune(model, onnx_models.feeds(model), judge, workspace="ws", measure_speed=False, really=True)
"""

FULL_DISK = """
import resource, sys
import onnx_models, lpot
from lpot.core.files.history import History
model = onnx_models.mlp(layers=2)
calls = [0]
def judge(given):
    calls[0] += 1
    return 1.0 if calls[0] == 1 else 0.5 + calls[0] / 100
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    result = lpot.tune(model, onnx_models.feeds(model), judge, workspace="ws", strategy="random",
                       max_trials=8, measure_speed=False)
except lpot.LpotError as error:
    print("ERROR", type(error).__name__, error)
else:
    print("RESULT", len(result.trials), result.accuracy, result.path, "|", result.stopped)
    assert result.model.native.graph.node
print("NOTHING ELSE")
"""


def judge(model: Any) -> float:
    return 1.0


def test_a_file_where_the_folder_should_be(tune: Any, tmp_path: Path) -> None:
    (tmp_path / "ws").write_text("I was here first")
    calls: list[Any] = []
    with pytest.raises(WorkspaceError, match=r"can't be written.*choose another"):
        tune(evaluate=calls.append)
    with pytest.raises(WorkspaceError, match="can't be written"):
        tune(evaluate=calls.append, workspace=tmp_path / "ws" / "below")
    assert calls == []
    assert (tmp_path / "ws").read_text() == "I was here first"


def test_a_folder_without_permission(
    tune: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):  # the superuser may write anywhere

        def refuse(**options: Any) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    calls: list[Any] = []
    with pytest.raises(WorkspaceError, match=r"can't be written \(Permission denied\)"):
        tune(evaluate=calls.append, workspace=folder)
    assert calls == []


def test_a_name_that_is_too_long(tune: Any, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="can't be written"):
        tune(evaluate=judge, workspace=tmp_path / ("w" * 300))


def test_too_little_room_is_said_before_anything_is_done(
    tune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(WorkspaceError, match="0 MiB are free, but the model needs about 1 MiB"):
        tune(evaluate=judge)


@pytest.mark.parametrize("limit", [300, 2_000, 5_000, 100_000])
def test_a_disk_that_fills_up_never_loses_the_best(script: Any, limit: int) -> None:
    """No file may grow beyond `limit` bytes: history, statistics or model fail first."""
    out = script(FULL_DISK, limit).stdout
    assert out.rstrip().endswith("NOTHING ELSE")
    if limit <= 300:
        assert out.startswith("ERROR WorkspaceError"), out
    elif limit == 100_000:
        assert out.startswith("RESULT 8 0.59 "), out
    else:
        assert out.startswith("RESULT"), out
        trials, accuracy = out.split()[1:3]
        assert float(accuracy) == pytest.approx(0.51 + int(trials) / 100)
        assert "the workspace failed" in out


def test_writing_fails_in_the_middle(tune: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from lpot.core.files import history

    calls = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(history.os, "fsync", full)
    model = onnx_models.mlp(layers=6)
    scores = iter([1.0, *(0.5 + n / 100 for n in range(50))])
    result = tune(model, evaluate=lambda m: next(scores), strategy="random", max_trials=20)
    assert "No space left on device" in result.stopped
    assert result.best is not None
    assert result.accuracy == max(trial.accuracy for trial in result.trials)
    assert onnx_models.run(result.model.native, onnx_models.feeds(model)[0])


def test_the_output_is_checked_before_anything_is_done(tune: Any, tmp_path: Path) -> None:
    calls: list[Any] = []
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="choose another output"):
        tune(evaluate=calls.append, output=tmp_path / "file" / "out.onnx")
    source = tmp_path / "fp32.onnx"
    onnx.save(onnx_models.mlp(), source)
    before = source.read_bytes()
    data = onnx_models.feeds(onnx_models.mlp())
    (tmp_path / "link.onnx").symlink_to(source)
    for same in (source, tmp_path / "link.onnx", tmp_path / "." / "fp32.onnx"):
        with pytest.raises(ConfigError, match="is the FP32 model itself"):
            tune(str(source), data, calls.append, output=same)
    assert calls == []
    assert source.read_bytes() == before


def test_an_output_folder_is_made_and_a_folder_gets_the_file(tune: Any, tmp_path: Path) -> None:
    deep = tune(evaluate=judge, output=tmp_path / "a" / "b" / "out.onnx")
    assert deep.path == tmp_path / "a" / "b" / "out.onnx"
    into = tune(evaluate=judge, output=tmp_path / "a")
    assert into.path == tmp_path / "a" / "best_model.onnx"
    assert into.path.read_bytes() == deep.path.read_bytes()


def test_a_second_process_is_told_who_owns_the_workspace(
    tune: Any, tmp_path: Path, environment: Any
) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], cwd=tmp_path, env=environment())
    try:
        wait_until((tmp_path / "started").exists, owner)
        calls: list[Any] = []
        with pytest.raises(WorkspaceBusy, match=rf"process {owner.pid} is tuning.*--new-run"):
            tune(evaluate=calls.append)
        assert calls == []
        apart = tune(evaluate=judge, new_run=True)
        assert apart.workspace == tmp_path / "ws-run2"
        third = tune(evaluate=judge, new_run=True)
        assert third.workspace == tmp_path / "ws-run3"
    finally:
        owner.kill()
        owner.wait()
    assert tune(evaluate=judge).met is True  # the dead hold no locks


def test_drafts_of_a_killed_run_are_swept_and_nothing_else(tune: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    drafts = [folder / f".lpot-draft-{number}-0a1b2c3d" for number in (gone.pid, os.getpid())]
    for draft in drafts:
        draft.mkdir(parents=True)
        (draft / "best_model.onnx").write_bytes(b"half")
    (folder / f".history.jsonl.lpot-{gone.pid}-tmp").touch()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (folder / f".lpot-draft-{gone.pid}-ffffffff").symlink_to(outside)
    mine = [".hidden", ".notes.tmp", ".notes.77.tmp", ".lpot-notes", ".lpot-draft-12", "notes.txt"]
    for name in mine:
        (folder / name).write_text("mine")
    for name in (".backup.tmp", ".lpot-experiments", f".lpot-draft-{gone.pid}-mine"):
        (folder / name).mkdir()
        mine.append(name)
    alive = folder / f".lpot-draft-{os.getppid()}-0a1b2c3d"  # another's, who is still at it
    alive.mkdir()
    tune(evaluate=judge)
    left = {path.name for path in folder.iterdir() if path.name.startswith((".", "notes"))}
    assert left == {*mine, alive.name}
    assert (outside / "precious").exists()


def test_the_working_folder_as_a_workspace_keeps_its_files(
    tune: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".notes.tmp").write_text("mine")
    (tmp_path / ".backup.tmp").mkdir()
    (tmp_path / ".lpot-experiments").mkdir()
    for _ in range(2):
        tune(evaluate=judge, workspace=Path())
    hidden = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert hidden == {".notes.tmp", ".backup.tmp", ".lpot-experiments"}


FORKER = """
import os, sys, time, pathlib
import onnx_models, lpot
model = onnx_models.mlp()
def judge(given):
    if os.fork() == 0:
        os.closerange(0, 3)  # whoever reads our output does not wait for this one
        pathlib.Path("child").write_text(str(os.getpid()))
        time.sleep(600)
        os._exit(0)
    while not pathlib.Path("child").exists():
        time.sleep(0.01)
    os._exit(3)
lpot.tune(model, onnx_models.feeds(model), judge, workspace="ws", measure_speed=False)
"""


def test_a_forked_child_that_lives_on_holds_no_lock(tune: Any, script: Any, tmp_path: Path) -> None:
    assert script(FORKER, check=False).returncode == 3
    child = int((tmp_path / "child").read_text())
    try:
        os.kill(child, 0)  # it is still there
        assert tune(evaluate=judge).met is True
    finally:
        os.kill(child, signal.SIGKILL)


TWICE = """
import pathlib, sys
import onnx_models, lpot, patience
model = onnx_models.mlp()
def judge(given):
    patience.wait_until(pathlib.Path("turned away").exists)
    return 1.0
try:
    result = lpot.tune(model, onnx_models.feeds(model), judge, workspace="ws", measure_speed=False,
                       really=True)
    print("DONE", result.met)
except lpot.LpotError as error:
    print("BUSY", error)
    pathlib.Path("turned away").touch()
"""


def test_two_tunings_started_at_once_in_one_workspace(tmp_path: Path, environment: Any) -> None:
    """One does the work, the other says who holds the workspace; nothing is mixed up."""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", TWICE],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=PATIENCE)[0] for process in both]
    assert sorted(text.split()[0] for text in said) == ["BUSY", "DONE"], said
    for text, other in zip(said, reversed(both), strict=True):
        if text.startswith("BUSY"):
            assert f"process {other.pid} is tuning here" in text
    history = History.read(tmp_path / "ws" / "history.jsonl")
    assert history.notes == [] and len(history.trials) == 1


def test_a_best_model_that_was_lost_or_spoilt_is_written_again(tune: Any) -> None:
    first = tune(evaluate=judge)
    good = first.path.read_bytes()
    card = first.path.with_name("best_model.onnx.card.json")
    for spoil in (
        first.path.unlink,
        lambda: first.path.write_bytes(good[:-10]),
        card.unlink,
        lambda: card.write_text("{"),
        lambda: card.write_text("[]"),
        lambda: card.write_text('{"format": 99}'),
    ):
        spoil()
        again = tune(evaluate=judge)
        assert all(trial.recalled for trial in again.trials)
        assert again.path.read_bytes() == good
        assert lpot.load(again.path).recipe == first.recipe


def test_another_models_best_is_not_mistaken_for_this_one(tune: Any) -> None:
    """Same op names, same (empty) recipe, other weights: nothing can be quantized in either."""
    for seed in (1, 2):
        model = onnx_models.mlp(seed=seed)
        result = tune(model, evaluate=judge, keep_fp32=[".*"])
        feed = onnx_models.feeds(model)[0]
        expected = onnx_models.run(model, feed)[0]
        assert (onnx_models.run(result.path, feed)[0] == expected).all()


@pytest.mark.parametrize(
    "name",
    ["with space", "ünï-код-日本", "semi;colon:and'quote\"", "-dash", "a" * 200, "%s{}$HOME"],
)
def test_odd_paths(tune: Any, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    source = folder / f"{name}.onnx"
    onnx.save(onnx_models.mlp(), source)
    data = onnx_models.feeds(onnx_models.mlp())
    output = folder / f"{name} int8.onnx"
    result = tune(source, data, judge, workspace=folder / name, output=output)
    assert result.path == output
    assert lpot.load(output).recipe == result.recipe
    assert (
        json.loads(output.with_name(f"{output.name}.card.json").read_text())["file"] == output.name
    )
    again = tune(source, data, judge, workspace=folder / name)
    assert all(trial.recalled for trial in again.trials)


@pytest.mark.parametrize(
    "name", ["../../up", "/etc/passwd", "a/b\\c:d", "..", "", "x" * 500, "日" * 99, "\n"]
)
def test_a_models_name_never_leads_out_of_the_workspace(name: str) -> None:
    safe = safe_name(name)
    assert safe not in ("", ".", "..")
    assert not set(safe) & set('/\\:\n"')
    assert len(os.fsencode(safe)) <= 200


def test_the_default_workspace_lies_below_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = onnx_models.mlp()
    config = {"model": {"name": "../up", "framework": "onnxrt_qlinearops"}}
    result = lpot.tune(model, onnx_models.feeds(model), judge, config=config, measure_speed=False)
    assert result.workspace == tmp_path / "lpot_workspace" / "onnxrt_qlinearops" / "_up"
    assert {path.name for path in tmp_path.iterdir()} == {"lpot_workspace"}


def test_an_eval_func_that_changes_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    model = onnx_models.mlp(layers=4)
    onnx.save(model, "fp32.onnx")
    scores = iter([1.0, 0.5, 0.6, 0.7])

    def wanderer(given: Any) -> float:
        os.chdir(tmp_path / "data")
        return next(scores)

    options: dict[str, Any] = {"strategy": "random", "max_trials": 3, "measure_speed": False}
    data = onnx_models.feeds(model)
    result = lpot.tune("fp32.onnx", data, wanderer, output="int8.onnx", **options)
    assert result.path == tmp_path / "int8.onnx"
    assert result.path.is_file()
    assert len(result.trials) == 3
    assert list((tmp_path / "data").iterdir()) == []
