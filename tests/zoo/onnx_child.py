"""Models tuned one after the other in a process of its own; a line of JSON tells the end of each.

A crash, or a model that takes too long, ends the process: that model's row tells so, and a new one
goes on with the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Timer

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600.0  # of one model
TOLD = "row "
Feed = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """What came of one model: `good` if it was tuned or refused in one clear sentence."""

    name: str
    good: bool
    word: str
    int8: int = 0
    fp32: int = 0
    before: int = 0  # bytes of the file
    after: int = 0
    error: float = 0.0  # squared error of the outputs over their square, on the first sample


@dataclass(frozen=True)
class Task:
    """A model on disk and what it is fed."""

    name: str
    model: Path
    feeds: Path
    count: int
    workspace: Path

    @classmethod
    def of(cls, name: str, model: Path, data: list[Feed], folder: Path) -> Task:
        folder.mkdir(parents=True, exist_ok=True)
        feeds = folder / "feeds.npz"
        np.savez(feeds, **{f"{i}\t{key}": one[key] for i, one in enumerate(data) for key in one})
        return cls(name, model, feeds, len(data), folder / "ws")

    def samples(self) -> list[Feed]:
        data: list[Feed] = [{} for _ in range(self.count)]
        with np.load(self.feeds) as stored:
            for key in stored.files:
                number, _, name = key.partition("\t")
                data[int(number)][name] = stored[key]
        return data


def attempts(tasks: list[Task], seconds: float = SECONDS) -> list[Row]:
    rows: list[Row] = []
    while len(rows) < len(tasks):
        rows += _child(tasks[len(rows) :], seconds)
    return rows


def _child(tasks: list[Task], seconds: float) -> list[Row]:
    """The rows of one process, up to the model that ended it."""
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    command = [sys.executable, __file__, json.dumps([asdict(task) for task in tasks], default=str)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        rows: list[Row] = []
        for task in tasks:
            timer = Timer(seconds, process.kill)
            timer.start()
            line = next((text for text in process.stdout if text.startswith(TOLD)), "")
            timer.cancel()
            if not line:
                errors.seek(0)
                last = (errors.read().strip().splitlines() or [""])[-1]
                rows.append(Row(task.name, False, f"exit status {process.wait()}: {last[:120]}"))
                break
            rows.append(Row(task.name, **json.loads(line.removeprefix(TOLD))))
        process.stdout.close()
        process.wait()
    return rows


def tune_here(task: Task) -> Row:
    """As a newcomer would do it: the model, some data, and nothing else."""
    import lpot
    import onnx_models
    from lpot.core.errors import LpotError
    from lpot.core.ptq.distance import distance

    data = task.samples()
    try:
        result = lpot.tune(task.model, data, workspace=task.workspace, measure_speed=False)
    except LpotError as error:
        text = str(error)
        return Row(task.name, "\n" not in text and len(text) > 20, f"refused: {text}")
    made = Path(result.path)
    outputs = onnx_models.run(made, data[0])
    try:
        truth = onnx_models.run(task.model, data[0])
    except Exception:  # older than what the runtime runs
        truth = outputs
    off = float(distance(truth, outputs))
    counts = result.precisions
    word = "tuned" if counts.get("int8") else result.notes[0]
    return Row(
        task.name,
        bool(np.isfinite(off)),
        word,
        counts.get("int8", 0),
        counts.get("fp32", 0),
        task.model.stat().st_size,
        made.stat().st_size,
        off,
    )


def main(tasks: list[dict[str, str]]) -> None:
    for raw in tasks:
        paths = {key: Path(raw[key]) for key in ("model", "feeds", "workspace")}
        row = asdict(tune_here(Task(raw["name"], count=int(raw["count"]), **paths)))
        del row["name"]
        print(TOLD + json.dumps(row), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
