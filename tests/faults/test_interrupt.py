"""Ctrl-C once stops after the trial in flight and keeps the best; twice stops at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import lpot
import onnx_models
from lpot.core.files.history import History
from lpot.core.progress import Listener
from patience import PATIENCE, wait_until

TUNING = """
import json, pathlib, signal, sys
import lpot, onnx_models, patience
from lpot.core.progress import Listener
at, measure = int(sys.argv[1]), sys.argv[2] == "True"
model = onnx_models.mlp(layers=6)
calls = 0
def judge(given):
    global calls
    calls += 1
    if calls == at:
        pathlib.Path("now").touch()
        patience.wait_until(pathlib.Path("go").exists)
    is_low = any(node.op_type == "QuantizeLinear" for node in given.graph.node)
    return 0.5 + calls / 100 if is_low else 1.0
class Heard(Listener):
    def note(self, text):
        if "Ctrl-C" in text:
            pathlib.Path("heard").touch()
before = signal.getsignal(signal.SIGINT)
try:
    result = lpot.tune(model, onnx_models.feeds(model), judge, strategy="random", max_trials=6,
                       workspace="ws", measure_speed=measure, listener=Heard(),
                       trust_history=True)
finally:
    assert signal.getsignal(signal.SIGINT) is before
print(json.dumps({"calls": calls, "met": result.met, "accuracy": result.accuracy,
                  "interrupted": result.interrupted, "stopped": result.stopped,
                  "speed": result.speed, "path": str(result.path)}))
"""


def start(tmp_path: Path, environment: dict[str, str], at: int, measure: bool = True) -> Any:
    """A tuning that has come to that evaluation, and stays there until the file `go` is made."""
    running = subprocess.Popen(
        [sys.executable, "-c", TUNING, str(at), str(measure)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "now").exists, running)
    return running


def interrupt(running: Any, tmp_path: Path) -> None:
    """Once; it is back when the tuning has heard of it."""
    running.send_signal(signal.SIGINT)
    wait_until((tmp_path / "heard").exists, running)


def test_once_ends_after_the_trial_and_hands_back_the_best(
    tmp_path: Path, environment: Any
) -> None:
    running = start(tmp_path, environment(), at=3)
    interrupt(running, tmp_path)
    (tmp_path / "go").touch()
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, err
    found = json.loads(out)
    assert found["interrupted"] is True
    assert found["stopped"] == "interrupted by the user"
    assert (found["calls"], found["accuracy"]) == (3, 0.53)  # the trial in flight was finished
    assert found["speed"] is None  # no waiting for a measurement
    assert (tmp_path / found["path"]).is_file()
    assert len(History.read(tmp_path / "ws" / "history.jsonl").trials) == 2


def test_once_during_the_baseline_hands_back_fp32(tmp_path: Path, environment: Any) -> None:
    running = start(tmp_path, environment(), at=1)
    interrupt(running, tmp_path)
    (tmp_path / "go").touch()
    out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, err
    found = json.loads(out)
    assert (found["calls"], found["met"], found["interrupted"]) == (1, False, True)
    assert History.read(tmp_path / "ws" / "history.jsonl").baseline is not None


def test_twice_ends_at_once_and_the_history_goes_on(tmp_path: Path, environment: Any) -> None:
    running = start(tmp_path, environment(), at=4)
    interrupt(running, tmp_path)
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE)  # though nothing lets the evaluation end
    assert running.returncode == -signal.SIGINT or "KeyboardInterrupt" in err
    assert len(History.read(tmp_path / "ws" / "history.jsonl").trials) == 2
    assert list((tmp_path / "ws").glob(".*")) == []
    (tmp_path / "now").unlink()
    (tmp_path / "go").touch()
    again = start(tmp_path, environment(), at=1, measure=False)
    out, err = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, err
    assert json.loads(out)["calls"] == 4  # two trials and the baseline were known


def test_a_thread_can_tune_without_touching_signals(tmp_path: Path) -> None:
    model = onnx_models.mlp()
    found: list[Any] = []

    def work() -> None:
        options: dict[str, Any] = {"workspace": tmp_path, "measure_speed": False}
        found.append(lpot.tune(model, onnx_models.feeds(model), lambda m: 1.0, **options))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    assert found[0].met is True
    assert signal.getsignal(signal.SIGINT) is before


def test_a_listener_that_is_caught_in_the_middle_of_a_write(tmp_path: Path) -> None:
    """Python refuses to write from a handler into a stream that is being written to."""

    class Busy(Listener):
        def note(self, text: str) -> None:
            if "Ctrl-C" in text:
                raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    calls = []

    def judge(model: Any) -> float:
        calls.append(model)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return 1.0 if len(calls) == 1 else 0.5

    model = onnx_models.mlp(layers=6)
    options: dict[str, Any] = {"strategy": "random", "workspace": tmp_path, "listener": Busy()}
    result = lpot.tune(model, onnx_models.feeds(model), judge, **options)
    assert result.interrupted is True
    assert [trial.error for trial in result.trials] == [None]
