"""The sections without nets: what an import costs, and what reading data costs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from board import Board, child

IMPORT_GOAL = 0.3
RECORD_GOAL = 0.5  # our speed over tf.data's, one thread
IMAGE_GOAL = 1.2  # our time over Pillow's decode and resize alone


def import_time(names: Sequence[str], board: Board) -> None:
    """`import lpot` in a fresh interpreter, beyond what the interpreter itself takes."""
    board.title("Import")
    bare = _start("pass")
    board.row("python", "", f"{bare:.3f} s")
    extra = _start("import lpot") - bare
    told = board.goal(f"< {IMPORT_GOAL} s", extra < IMPORT_GOAL)
    board.row("import lpot", "beyond that", f"{extra:.3f} s", told)
    board.keep("import", "seconds", {"python": bare, "lpot": extra})


def _start(code: str, times: int = 7) -> float:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True
        )
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def data(names: Sequence[str], board: Board) -> None:
    """CPU milliseconds an item; each goal is a ratio to the other way of doing the same."""
    board.title("Reading data: CPU time an item")
    found = child("data.py")
    records, images = found["records"], found["images"]
    for name, other in (("ours", "tf.data"), ("ours, parsed", "tf.data, parsed")):
        speed = records[other] / records[name]
        board.row("records", other, f"{records[other]:.3f} ms")
        told = board.goal(f"{speed:.2f} >= {RECORD_GOAL} of its speed", speed >= RECORD_GOAL)
        board.row("records", name, f"{records[name]:.3f} ms", told)
    cost = images["ours"] / images["Pillow"]
    told = board.goal(f"{cost:.2f} <= {IMAGE_GOAL} of Pillow", cost <= IMAGE_GOAL)
    for name, value in images.items():
        board.row("images", name, f"{value:.3f} ms", told if name == "ours" else "")
    board.keep("data", "milliseconds", found)
