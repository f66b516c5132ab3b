"""Tunings that are killed at random moments, each in a process of its own; test_kill.py starts it.

    kill_driver.py FRAMEWORK EXECUTOR FOLDER SEED KILLS

Children are forked before any kernel has run: an import costs seconds, a fork milliseconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import kill_job

from lpot.backends import get_backend
from lpot.core.history import History
from lpot.core.trial import State

TRIALS = 5
PAUSE = 0.15  # seconds of an evaluation: most kills shall fall into the search


def child(framework: str, executor: str, folder: Path, pause: float = 0.0) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setpgrp()
        kill_job.PAUSE[0] = pause
        result = kill_job.tune(framework, executor, folder, TRIALS)
        told = {"recipe": result.recipe.digest, "accuracy": result.accuracy}
        folder.with_suffix(".json").write_text(json.dumps(told))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def asked(framework: str, folder: Path) -> Any:
    """What the model on disk is, found out in another process: this one runs no kernels."""
    answer = folder.with_suffix(".best")
    pid = os.fork()
    if not pid:
        try:
            answer.write_text(json.dumps(kill_job.best(framework, folder)))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"{folder}: the best model can't be loaded"
    return json.loads(answer.read_text())


def finish(framework: str, executor: str, folder: Path) -> dict[str, Any]:
    _, status = os.waitpid(child(framework, executor, folder), 0)
    assert status == 0, f"{folder}: the rerun failed"
    found: dict[str, Any] = json.loads(folder.with_suffix(".json").read_text())
    return found


def done(path: Path) -> dict[str, float | None]:
    """The finished trials of a history: recipe and accuracy."""
    if not path.exists():
        return {}
    history = History.open(path, History.read(path).fingerprint)
    return {t.recipe.digest: t.accuracy for t in history.trials if t.state is State.DONE}


def check(framework: str, executor: str, folder: Path, wanted: dict[str, Any]) -> int:
    path = folder / "history.jsonl"
    whole = path.exists() and path.read_bytes().count(b"\n") > 0
    known = done(path) if whole else {}
    there = asked(framework, folder)
    if there is not None:
        digest, accuracy = there
        # Of the trial that was being written down when the kill came history may not know yet.
        if digest in known:
            assert known[digest] == accuracy, f"{folder}: weights and recipe are of two models"
    found = finish(framework, executor, folder)
    assert found == wanted, (folder, found, wanted)
    after = done(path)
    assert known.items() <= after.items(), f"{folder}: finished trials were lost"
    assert len(after) == TRIALS, (folder, after)
    assert tuple(asked(framework, folder)) == (wanted["recipe"], wanted["accuracy"])
    places = (folder, folder / kill_job.BEST[framework])
    left = [item.name for place in places if place.is_dir() for item in place.glob(".*")]
    assert left == [], left
    return len(known)


def wait_for(path: Path, lines: int, pid: int) -> None:
    """Until the history has so many lines: on a busy machine a clock would miss the search."""
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.005)


def main(framework: str, executor: str, root: Path, seed: int, kills: int) -> list[int]:
    get_backend(framework)  # imports it; nothing runs yet
    draw = random.Random(seed)
    wanted = finish(framework, executor, root / "calm")
    lines = (root / "calm/history.jsonl").read_bytes().count(b"\n")
    known = []
    for number in range(kills):
        folder = root / f"kill{number}"
        pid = child(framework, executor, folder, PAUSE)
        wait_for(folder / "history.jsonl", draw.randint(0, lines - 1), pid)
        time.sleep(draw.uniform(0.0, 1.5 * PAUSE))
        os.killpg(pid, signal.SIGKILL) if number % 2 else os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        known.append(check(framework, executor, folder, wanted))
    return known


if __name__ == "__main__":
    word, how, place, number, count = sys.argv[1:]
    print(json.dumps(main(word, how, Path(place), int(number), int(count))))
