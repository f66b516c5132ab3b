"""What a stranger's code, folder or file may do: it costs no trial, no file, and no terminal."""

from __future__ import annotations

import io
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from faults.conftest import Script, Tune
from faults.test_hostile import search
from lpot.core.errors import (
    CalibrationError,
    ConfigError,
    EvaluationError,
    LpotError,
    WorkspaceError,
)
from lpot.core.files.history import History
from lpot.core.progress import Listener
from lpot.core.recipe import Recipe
from lpot.report.console import SafeConsole

# -- eval_func, loaders and listeners --------------------------------------------------------------


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def wordless() -> None:
    raise Wordless


def lost() -> None:
    """The working folder is gone when the error is put into words."""
    gone = Path("gone").absolute()
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    raise ValueError("where am I?")


@pytest.mark.parametrize("act", [wordless, lost])
def test_an_error_that_is_hard_to_tell_is_one_failed_trial(
    act: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = search(tmp_path / "ws", lambda call: act() if call == 2 else None)
    monkeypatch.chdir(tmp_path)
    assert [trial.state.name for trial in result.trials] == ["FAILED", "DONE", "DONE", "DONE"]
    with pytest.raises(EvaluationError, match="on the FP32 baseline"):
        search(tmp_path / "other", lambda call: act())


@pytest.mark.parametrize("value", [np.ma.masked, np.zeros(1, [("a", "f8")])])
def test_what_only_looks_like_a_number_is_no_score(tune: Tune, value: Any) -> None:
    with pytest.raises(EvaluationError, match="not a number"):
        tune(evaluate=lambda model: value)


FORKS = """
import os, sys
from pathlib import Path
from faults import test_hostile
from lpot.core.errors import LpotError
child = []
def act(call):
    if call == 2:
        child.append(os.fork())
workspace = Path(sys.argv[1])
try:
    result = test_hostile.search(workspace, act)
except LpotError as error:
    os._exit(7 if child == [0] and "forked" in str(error) else 1)
if child == [0]:
    os._exit(2)
_, status = os.waitpid(child[0], 0)
print(os.waitstatus_to_exitcode(status), [trial.state.name for trial in result.trials])
"""


def test_a_forked_child_that_comes_back_does_not_tune_as_well(
    tmp_path: Path, script: Script
) -> None:
    done = script(FORKS, tmp_path / "ws")
    assert done.stdout.split(" ", 1) == ["7", "['DONE', 'DONE', 'DONE', 'DONE']\n"]
    assert len(History.read(tmp_path / "ws/history.jsonl").trials) == 4


def test_a_loader_that_would_end_the_program(tune: Tune) -> None:
    def batches() -> Iterator[Any]:
        yield onnx_models.feeds(onnx_models.mlp())[0]
        sys.exit(3)

    with pytest.raises(CalibrationError, match=r"sys\.exit\(3\)"):
        tune(calib=batches, evaluate=lambda model: 1.0)


def test_a_loader_whose_length_raises_has_none(tune: Tune) -> None:
    class Odd:
        def __len__(self) -> int:
            raise RuntimeError("not yet")

        def __iter__(self) -> Iterator[Any]:
            return iter(onnx_models.feeds(onnx_models.mlp()))

    assert tune(calib=Odd(), evaluate=lambda model: 1.0).met


def test_a_trial_is_written_down_before_a_listener_can_raise(tune: Tune, tmp_path: Path) -> None:
    class Raising(Listener):
        def trial(self, trial: Any, best: Any) -> None:
            raise ValueError("of the listener")

    with pytest.raises(ValueError, match="of the listener"):
        tune(evaluate=lambda model: 1.0, listener=Raising())
    assert len(History.read(tmp_path / "ws/history.jsonl").trials) == 1


NOBODY = """
import os, sys
from pathlib import Path
from faults import test_hostile
if sys.argv[2] == "pipe":
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(reader), os.close(writer)
else:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
act = lambda call: sys.stderr.close() if sys.argv[2] == "closed" and call == 3 else None
print(len(test_hostile.search(Path(sys.argv[1]), act).trials))
"""


@pytest.mark.parametrize(
    "kind", ["pipe", *(pytest.param(k, marks=pytest.mark.slow) for k in ("full", "closed"))]
)
def test_progress_that_nobody_can_read(kind: str, tmp_path: Path, script: Script) -> None:
    assert script(NOBODY, tmp_path / "ws", kind).stdout == "4\n"


# -- names and links -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a\0b", "not-utf8-\udcff"])
def test_names_that_no_framework_opens(name: str, tune: Tune, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=r"null character|not UTF-8"):
        tune(workspace=tmp_path / name)
    with pytest.raises(WorkspaceError, match=r"null character|not UTF-8"):
        tune(output=tmp_path / name)


def test_a_models_name_in_half_characters_is_kept(tune: Tune, tmp_path: Path) -> None:
    named = {"model": {"name": "net\udcff", "framework": "onnxrt_qlinearops"}}
    first = tune(evaluate=lambda model: 1.0, config=named)
    again = tune(evaluate=lambda model: 1.0, config=named)
    assert first.met and all(trial.recalled for trial in again.trials)
    assert lpot.load(tmp_path / "ws").card["name"] == "net\udcff"


def test_an_output_does_not_write_over_the_history(tune: Tune, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="for its own files"):
        tune(output=tmp_path / "ws/history.jsonl")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_lock_that_is_a_link_is_not_followed(is_there: bool, tune: Tune, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    if is_there:
        target.write_text("of somebody else")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/lock").symlink_to(target)
    with pytest.raises(WorkspaceError, match="link: remove it"):
        tune()
    assert (target.read_text() == "of somebody else") if is_there else not target.exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_progress_file_that_is_something_else(kind: str, tune: Tune, tmp_path: Path) -> None:
    target, place = tmp_path / "precious", tmp_path / "ws/progress.json"
    target.write_text("of somebody else")
    place.parent.mkdir()
    place.symlink_to(target) if kind == "link" else os.mkfifo(place)
    assert tune(evaluate=lambda model: 1.0).met
    assert target.read_text() == "of somebody else"


def test_a_card_that_names_files_of_the_user(tmp_path: Path) -> None:
    """What it calls pieces of the old model goes only if it is just that."""
    search(tmp_path)
    notes, card = tmp_path / "notes.txt", tmp_path / "best_model.onnx.card.json"
    notes.write_text("of the user")
    raw = json.loads(card.read_text())
    raw["pieces"]["notes.txt"] = "0" * 64
    card.write_text(json.dumps(raw))
    (tmp_path / "best_model.onnx").write_bytes(b"damaged")
    assert search(tmp_path).path == tmp_path / "best_model.onnx"
    assert lpot.load(tmp_path).recipe is not None
    assert notes.read_text() == "of the user"


def test_a_lock_of_nested_brackets(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / "lock").write_text("[" * 100_000)
    with (tmp_path / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LpotError, match="another process is tuning here"):
            search(tmp_path)


# -- the disk and the terminal ---------------------------------------------------------------------


def test_half_a_line_is_taken_back(tmp_path: Path) -> None:
    history = History.open(tmp_path / "history.jsonl", {"model": "x"})
    history.begin(1, Recipe({}))
    size = history.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))
    try:
        with pytest.raises(WorkspaceError, match="can't write the history"):
            history.begin(2, Recipe({}, samples=3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert history.path.stat().st_size == size
    history.leave(["x"])
    assert History.read(history.path).notes == []


def test_names_give_no_orders_to_the_terminal() -> None:
    """The title, the screen and the direction of text are the user's."""
    for colours in (None, "truecolor"):
        page = io.StringIO()
        console = SafeConsole(file=page, force_terminal=colours is not None, color_system=colours)
        text = "\x1b]0;owned\x07 \x9b2J \u202egnp.exe \udcff tab\there"
        console.print(text, style="red", highlight=False)
        shown = page.getvalue().replace("\x1b[31m", "").replace("\x1b[0m", "")
        assert not set(shown) & set("\x1b\x07\x9b\u202e\udcff"), colours
        assert "owned" in shown and "gnp.exe" in shown and shown.endswith("\n")


def test_inspect_shows_the_names_of_a_foreign_model_as_text(tmp_path: Path, script: Script) -> None:
    model = onnx_models.mlp()
    for node in model.graph.node:
        node.name = f"\x1b[2J{node.name}"
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    done = script("from lpot.cli import main; main()", "inspect", tmp_path / "m.onnx")
    assert "dense0" in done.stdout and "\x1b" not in done.stdout + done.stderr
