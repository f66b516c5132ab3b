"""Tunes in forked children and kills them; test_crash.py starts it in a process of its own.

Forking costs milliseconds where a new interpreter costs a second; sessions of one thread survive
it. Syncing is left out: what a killed process wrote is still there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lpot
import onnx_models
from lpot.core.files.history import History

MODEL = onnx_models.mlp(layers=3, width=8)
DATA = onnx_models.feeds(MODEL, count=1)


def tune(
    folder: Path, trials: int, evaluates: Callable[[int], object] = lambda number: None
) -> lpot.Result:
    """A search whose scores depend on the model's bytes alone; each evaluation is logged."""
    log = folder.parent / f"{folder.name}.log"
    numbers = itertools.count(1)

    def judge(model: Any) -> float:
        evaluates(next(numbers))
        key = hash_of(model.SerializeToString(deterministic=True))
        with log.open("a") as stream:
            stream.write(f"{key}\n")
        is_low = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
        return int(key, 16) / 16**16 if is_low else 2.0

    options: dict[str, Any] = {"workspace": folder, "measure_speed": False, "trust_history": True}
    return lpot.tune(MODEL, DATA, judge, strategy="random", max_trials=trials, **options)


def hash_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]


def child(folder: Path, trials: int, kill_at: int = 0, lives: float = 0.0, since: int = 0) -> int:
    """Fork a tuning. With `kill_at` it kills itself when it syncs for the so-manieth time.

    With `lives` it dies so many seconds of CPU after its start, or after the evaluation `since`:
    by the clock on the wall, a busy machine would have them all die in the same place.
    """
    pid = os.fork()
    if pid:
        return pid
    status, syncs = 1, [0]

    def reach(evaluation: int) -> None:
        if lives and evaluation == since:
            signal.setitimer(signal.ITIMER_PROF, lives)  # nobody handles SIGPROF: it is deadly

    def fsync(handle: int) -> None:
        syncs[0] += 1
        if syncs[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = fsync  # type: ignore[assignment]
    try:
        reach(0)
        result = tune(folder, trials, reach)
        done = {"recipe": result.recipe.digest, "accuracy": result.accuracy}
        done["sha"] = hash_of(result.path.read_bytes()) if result.path else None
        (folder.parent / f"{folder.name}.json").write_text(json.dumps(done))
        status = 0
    finally:
        os._exit(status)


def finish(folder: Path, trials: int) -> dict[str, Any]:
    _, status = os.waitpid(child(folder, trials), 0)
    assert status == 0, f"{folder}: the rerun failed"
    found: dict[str, Any] = json.loads((folder.parent / f"{folder.name}.json").read_text())
    return found


def check(folder: Path, calm: Path, trials: int) -> int:
    """After a kill the history is sound, and a rerun ends as the undisturbed one did.

    Gives the number of trials that were known before the rerun.
    """
    path = folder / "history.jsonl"
    known = len(History.read(path).trials) if path.exists() and path.stat().st_size else 0
    wanted = json.loads((calm.parent / f"{calm.name}.json").read_text())
    found = finish(folder, trials)
    assert found == wanted, (found, wanted)
    evaluations = evaluated(folder)
    assert evaluated(calm) <= evaluations
    repeated = evaluations.total() - evaluated(calm).total()
    assert repeated <= 1, f"{repeated} evaluations were done twice"
    left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert left == [], left
    assert len(History.read(path).trials) == trials
    return known


def evaluated(folder: Path) -> Counter[str]:
    return Counter((folder.parent / f"{folder.name}.log").read_text().split())


def at_random_moments(root: Path, draw: random.Random, trials: int = 5) -> list[int]:
    """From loading the model to the last line: after its start, the baseline and each trial."""
    calm = root / "calm"
    finish(calm, trials)
    known = []
    for number in range(20):
        folder = root / f"moment{number}"
        lives, since = draw.uniform(0.001, 0.012), number % (trials + 2)
        os.waitpid(child(folder, trials, lives=lives, since=since), 0)
        known.append(check(folder, calm, trials))
    return known


def at_every_write(root: Path, trials: int = 3) -> list[int]:
    calm = root / "calm_writes"
    finish(calm, trials)
    known = []
    for number in range(1, 1000):
        folder = root / f"write{number}"
        _, status = os.waitpid(child(folder, trials, kill_at=number), 0)
        if status == 0:
            break
        known.append(check(folder, calm, trials))
    return known


def again_and_again(root: Path, draw: random.Random, trials: int = 5) -> None:
    """One workspace, killed until the search is through."""
    folder = root / "again"
    for _ in range(6):
        os.waitpid(child(folder, trials, lives=draw.uniform(0.02, 0.1)), 0)
    assert finish(folder, trials) == json.loads((root / "calm.json").read_text())
    assert (evaluated(folder) - evaluated(root / "calm")).total() <= 6


if __name__ == "__main__":
    root, draw = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    tune(root / "warm", trials=1)  # so that each child need not load and probe everything itself
    moments = at_random_moments(root, draw)
    again_and_again(root, draw)
    print(json.dumps({"moments": moments, "writes": at_every_write(root)}))
