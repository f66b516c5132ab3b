"""Tunings that are killed at random moments, each in a process of its own; test_kill.py starts it.

    kill_driver.py FRAMEWORK EXECUTOR FOLDER SEED KILLS

Children are forked before any kernel has run: an import costs seconds, a fork milliseconds. One
half of the kills comes at a random time, the other right before a file is opened for writing,
renamed or removed: that is where something could be lost.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kill_job

from lpot.backends import get_backend
from lpot.core.files.history import History
from lpot.core.trial import State

TRIALS = 5
PAUSE = 0.1  # seconds of an evaluation: most of the timed kills shall fall into the search
SALTS = 500
WRITES = os.O_WRONLY | os.O_RDWR
Act = Callable[[], None]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Campaign:
    def __init__(self, framework: str, executor: str, root: Path) -> None:
        self.framework, self.executor, self.root = framework, executor, root
        self.salt = 0
        self.allowed: tuple[type[Exception], ...] = ()  # that a tuning may end with

    def child(self, folder: Path, at: int = 0, act: Act = die, **options: Any) -> int:
        """Fork a tuning; `act` comes before the so-manieth thing that it does to a file."""
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            os.setpgrp()
            changes = count_changes(folder, at, act)
            try:
                told = self.tuned(folder, **options)
            finally:  # whatever has become of the disk: what came of it can be told
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            folder.with_suffix(".json").write_text(json.dumps({**told, "changes": changes[0]}))
            status = 0
        except self.allowed as error:
            print(type(error).__name__, error, file=sys.stderr)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def tuned(self, folder: Path, executor: str = "", pause: float = 0.0) -> dict[str, Any]:
        """What a tuning comes to, and which model lay there before and after it."""
        word, where = self.framework, executor or self.executor
        before = kill_job.best(word, folder, self.salt)
        result = kill_job.tune(word, where, folder, TRIALS, self.salt, pause)
        after = kill_job.best(word, folder, self.salt)
        return {
            "before": before,
            "after": after,
            "result": [result.recipe.digest, result.accuracy],
            "scores": [trial.accuracy for trial in result.trials],
        }

    def finish(self, folder: Path, **options: Any) -> dict[str, Any]:
        _, status = os.waitpid(self.child(folder, **options), 0)
        assert status == 0, f"{folder}: the best can't be loaded, or the rerun failed"
        found: dict[str, Any] = json.loads(folder.with_suffix(".json").read_text())
        return found

    def calm(self) -> dict[str, Any]:
        """The run that nobody kills, with scores of which several in turn are the best so far."""
        plain = self.finish(self.root / "plain", executor="serial")["scores"]
        self.salt = max(range(1, SALTS), key=lambda salt: records(plain, salt))
        found = self.finish(self.root / "calm")
        assert records(plain, self.salt) > 2, "the best is replaced while it is there"
        assert found["result"] == found["after"]
        return found

    def check(self, folder: Path, wanted: list[Any]) -> int:
        path = folder / "history.jsonl"
        whole = path.exists() and path.read_bytes().count(b"\n") > 0
        known = done(path) if whole else {}
        found = self.finish(folder)  # where it began: with several workers other recipes come first
        if found["before"] is not None:
            digest, accuracy = found["before"]
            # Of the trial that was being written when the kill came history may not know yet.
            assert known.get(digest, accuracy) == accuracy, f"{folder}: weights of another recipe"
        assert found["result"] == found["after"] == wanted, (folder, found, wanted)
        after = done(path)
        assert known.items() <= after.items(), f"{folder}: finished trials were lost"
        assert len(after) == TRIALS, (folder, after)
        places = (folder, folder / kill_job.BEST[self.framework])
        left = [item.name for place in places if place.is_dir() for item in place.glob(".*")]
        assert left == [], left
        return len(known)


def records(plain: list[float], salt: int) -> int:
    """How often one is better than all before; none if two share the first place."""
    scores = [kill_job.salted(score, salt) for score in plain]
    top = max(scores)
    found = sum(score > max(scores[:at], default=-1.0) for at, score in enumerate(scores))
    return found if scores.count(top) == 1 else 0


def count_changes(folder: Path, at: int, act: Act) -> list[int]:
    """Counts what this process does to files below a folder; acts before the so-manieth."""
    below, count = f"{folder}{os.sep}", [0]

    def watch(event: str, args: tuple[Any, ...]) -> None:
        opened = event == "open" and (args[2] or 0) & WRITES
        if not opened and event not in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            return
        if isinstance(args[0], str | os.PathLike) and os.fspath(args[0]).startswith(below):
            count[0] += 1
            if count[0] == at:
                act()

    sys.addaudithook(watch)
    return count


def done(path: Path) -> dict[str, float | None]:
    history = History.read(path)
    return {t.recipe.digest: t.accuracy for t in history.trials if t.state is State.DONE}


def wait_for(path: Path, lines: int, pid: int) -> None:
    """Until the history has so many lines: on a busy machine a clock would miss the search."""
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.005)


def main(framework: str, executor: str, root: Path, seed: int, kills: int) -> list[int]:
    get_backend(framework)  # imports it; nothing runs yet
    draw = random.Random(seed)
    campaign = Campaign(framework, executor, root)
    calm = campaign.calm()
    lines = (root / "calm/history.jsonl").read_bytes().count(b"\n")
    known = []
    for number in range(kills):
        folder = root / f"kill{number}"
        if number % 2:
            pid = campaign.child(folder, at=draw.randint(1, calm["changes"]))
        else:
            pid = campaign.child(folder, pause=PAUSE)
            wait_for(folder / "history.jsonl", draw.randint(0, lines - 1), pid)
            time.sleep(draw.uniform(0.0, 1.5 * PAUSE))
            os.killpg(pid, signal.SIGKILL) if number % 4 else os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        known.append(campaign.check(folder, calm["result"]))
    return known


if __name__ == "__main__":
    word, how, place, number, count = sys.argv[1:]
    print(json.dumps(main(word, how, Path(place), int(number), int(count))))
