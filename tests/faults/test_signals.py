"""SIGTERM and SIGHUP, as docker, a batch system or a closed terminal send them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import onnx_models
from lpot.core.files.history import History
from lpot.core.trial import State
from patience import PATIENCE, wait_until

# The first INT8 recipe, which is the best, waits for the file `go`; all others are worse.
SLOW_BEST = """
import pathlib, signal, sys
import lpot, onnx_models, patience
from lpot.core import interrupt
from lpot.core.progress import Listener
interrupt.GRACE = patience.PATIENCE  # a busy machine may need longer than docker gives
# Whoever started the tests may ignore it, as nohup does.
signal.signal(signal.SIGHUP, signal.SIG_IGN if "nohup" in sys.argv else signal.SIG_DFL)
if "theirs" in sys.argv:
    def ends(number, frame):
        print("THEIRS", flush=True)
        sys.exit(7)
    signal.signal(signal.SIGTERM, ends)
if __name__ == "__main__":
    model = onnx_models.mlp(layers=3)
    def judge(given):
        low = sum(node.op_type == "QuantizeLinear" for node in given.graph.node)
        if low:
            pathlib.Path("now").touch()
            patience.wait_until(pathlib.Path("go").exists)
        return 1.0
    class Heard(Listener):
        def note(self, text):
            if "stopping" in text:
                pathlib.Path("heard").touch()
    result = lpot.tune(model, onnx_models.feeds(model), judge, workspace="ws", max_trials=4,
                       measure_speed=False, listener=Heard())
    print("RESULT", result.met, len(result.recipe.float_ops), result.stopped)
"""


def start(folder: Path, environment: Any, *args: str) -> subprocess.Popen[str]:
    """A tuning that has come to its first INT8 recipe."""
    for name in ("now", "heard"):
        (folder / name).unlink(missing_ok=True)
    running = subprocess.Popen(
        [sys.executable, "-c", SLOW_BEST, *args],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((folder / "now").exists, running)
    return running


def announce(running: subprocess.Popen[str], folder: Path, number: int = signal.SIGTERM) -> None:
    """Send a signal; it is back when the tuning has heard of it."""
    running.send_signal(number)
    wait_until((folder / "heard").exists, running)


def finished(folder: Path, environment: Any) -> tuple[str, str]:
    """What a tuning says that nothing stops."""
    (folder / "go").touch()
    return start(folder, environment).communicate(timeout=PATIENCE)


def test_two_terminations_do_not_cost_the_best_recipe(tmp_path: Path, environment: Any) -> None:
    for _ in range(2):
        running = start(tmp_path, environment)
        announce(running, tmp_path)
        running.send_signal(signal.SIGTERM)  # no patience: at once
        _, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == 128 + signal.SIGTERM, err
        assert "Traceback" not in err
        assert [path.name for path in (tmp_path / "ws").glob(".*")] == []
    out, err = finished(tmp_path, environment)
    assert out.startswith("RESULT True 0 "), (out, err)
    trials = History.read(tmp_path / "ws" / "history.jsonl").trials
    assert [trial.state for trial in trials] == [State.DONE]


def test_the_trial_in_flight_may_end_and_the_result_is_written(
    tmp_path: Path, environment: Any
) -> None:
    running = start(tmp_path, environment)
    announce(running, tmp_path)
    (tmp_path / "go").touch()
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 143, err
    assert out == ""  # the program ends, whatever its script would have done next
    assert len(History.read(tmp_path / "ws" / "history.jsonl").trials) == 1
    assert json.loads((tmp_path / "ws" / "result.json").read_text())["met"] is True


def test_a_kill_after_the_announcement_is_no_death_either(tmp_path: Path, environment: Any) -> None:
    for _ in range(2):
        running = start(tmp_path, environment)
        announce(running, tmp_path)
        running.kill()
        running.communicate()
    out, _ = finished(tmp_path, environment)
    assert out.startswith("RESULT True 0 "), out


def test_a_closed_terminal_ends_it_and_nohup_does_not(tmp_path: Path, environment: Any) -> None:
    running = start(tmp_path, environment, "nohup")
    running.send_signal(signal.SIGHUP)
    (tmp_path / "go").touch()
    out, _ = running.communicate(timeout=PATIENCE)
    assert out.startswith("RESULT True 0"), out
    other = tmp_path / "other"
    other.mkdir()
    running = start(other, environment)
    announce(running, other, signal.SIGHUP)
    (other / "go").touch()
    running.communicate(timeout=PATIENCE)
    assert running.returncode == 128 + signal.SIGHUP


def test_a_handler_of_the_programs_own_is_called(tmp_path: Path, environment: Any) -> None:
    running = start(tmp_path, environment, "theirs")
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out) == (7, "THEIRS\n")


def test_a_recipe_in_which_the_process_died_is_tried_last(
    tmp_path: Path, environment: Any, tune: Any
) -> None:
    """Killed twice without a word in the best recipe: it is found in the end all the same."""
    for _ in range(2):
        running = start(tmp_path, environment)
        running.kill()
        running.communicate()
    out, err = finished(tmp_path, environment)
    assert out.startswith("RESULT True 0 "), (out, err)


def test_a_recipe_that_kills_is_left_at_last(tmp_path: Path, environment: Any) -> None:
    """It dies in the suspect once more; the next run comes to an end without it."""
    for _ in range(2):
        running = start(tmp_path, environment)
        running.kill()
        running.communicate()
    path = tmp_path / "ws" / "history.jsonl"
    history = History.open(path, History.read(path).fingerprint)
    (digest,) = {key for key, count in history._begun.items() if count == 2}
    history._append({"kind": "begin", "number": 9, "digest": digest})  # as if it had died again
    out, _ = finished(tmp_path, environment)
    assert out.startswith("RESULT True"), out
    assert not out.startswith("RESULT True 0 "), out


FORKING = """
import multiprocessing, os, signal, sys, time
import onnx_models, lpot
def sleep():
    time.sleep(600)
model = onnx_models.mlp()
def judge(given):
    child = multiprocessing.get_context("fork").Process(target=sleep)
    child.start()
    child.terminate()
    child.join(300)
    assert child.exitcode == -signal.SIGTERM, child.exitcode
    return 1.0
result = lpot.tune(model, onnx_models.feeds(model), judge, workspace="ws", measure_speed=False,
                   really=True)
print(result.met, [trial.error for trial in result.trials])
"""


def test_children_that_eval_func_forks_can_be_terminated(script: Any) -> None:
    assert script(FORKING).stdout == "True [None]\n"


# -- what eval_func and saving do to a search ------------------------------------------------------


def test_sys_exit_in_eval_func_is_a_failed_trial(tune: Any) -> None:
    calls: list[Any] = []

    def judge(model: Any) -> float:
        calls.append(model)
        if len(calls) == 2:
            sys.exit(3)
        return 1.0

    result = tune(evaluate=judge, strategy="random", max_trials=3)
    assert result.met is True
    first = result.trials[0]
    assert first.state is State.FAILED
    assert "sys.exit(3)" in (first.error or "") and "return a score" in (first.error or "")


def test_a_timeout_before_the_first_trial_hands_over_int8_unproved(tune: Any, clock: Any) -> None:
    def slow(model: Any) -> float:
        clock.now += 0.6
        return 1.0

    result = tune(evaluate=slow, timeout=0.5)
    assert result.met is None and result.accuracy is None
    assert result.recipe.low_ops and not result.recipe.float_ops
    assert result.path is not None and result.path.is_file()
    assert any(note.startswith("not evaluated: timeout of 0.5 s reached") for note in result.notes)
    assert json.loads((result.workspace / "result.json").read_text())["met"] is None
    again = tune(evaluate=slow, timeout=30, max_trials=1)  # the baseline is known now
    assert again.met is True


def test_a_model_that_can_not_be_saved_is_a_failed_trial(
    tune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever raises after the evaluation: the search goes on, with the next best."""
    from lpot.backends.onnx import OnnxBackend
    from lpot.core.errors import SaveError

    real = OnnxBackend.save
    failures = [SaveError("it came back differently"), ValueError("odd"), None, None, None]
    monkeypatch.setattr(
        OnnxBackend,
        "save",
        lambda self, model, path: _raise(failures) or real(self, model, path),
    )
    scores = iter([1.0, 0.5, 0.6, 0.55, 0.52])
    model = onnx_models.mlp(layers=4)
    result = tune(model, evaluate=lambda m: next(scores), strategy="random", max_trials=4)
    assert [trial.state for trial in result.trials] == ["failed", "failed", "done", "done"]
    assert result.accuracy == 0.55
    assert "odd" in (result.trials[1].error or "")
    assert result.path is not None and result.path.is_file()
    known = {trial.recipe.digest: trial.state for trial in History.read(result.history).trials}
    assert list(known.values()) == ["failed", "failed", "done", "done"]


def _raise(failures: list[Exception | None]) -> None:
    failure = failures.pop(0)
    if failure is not None:
        raise failure


def test_signal_handlers_are_put_back(tune: Any) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    tune(evaluate=lambda model: 1.0)
    assert [signal.getsignal(number) for number in numbers] == before
