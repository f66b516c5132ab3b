"""One model tuned as a newcomer would do it, in a process of its own; a line of JSON tells the end.

python onnx_attempt.py model.onnx feeds.npz workspace
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600
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


def attempt(name: str, model: Path, data: list[Feed], folder: Path) -> Row:
    """A crash of the child is a row like any other."""
    folder.mkdir(parents=True, exist_ok=True)
    feeds = folder / "feeds.npz"
    np.savez(feeds, **{f"{i}\t{key}": one[key] for i, one in enumerate(data) for key in one})
    command = [sys.executable, __file__, str(model), str(feeds), str(folder / "ws"), str(len(data))]
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Row(name, False, f"did not end within {SECONDS} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return Row(name, False, f"exit status {done.returncode}: {last[:120]}")
    return Row(name, **json.loads(lines[-1]))


def tune_here(model: Path, feeds: Path, workspace: Path, count: int) -> Row:
    import lpot
    import onnx_models
    from lpot.core.errors import LpotError
    from lpot.core.ptq.distance import distance

    with np.load(feeds) as stored:
        names = [key.partition("\t") for key in stored.files]
        data: list[Feed] = [{} for _ in range(count)]
        for number, _, key in names:
            data[int(number)][key] = stored[f"{number}\t{key}"]
    try:
        result = lpot.tune(model, data, workspace=workspace, measure_speed=False)
    except LpotError as error:
        text = str(error)
        return Row("", "\n" not in text and len(text) > 20, f"refused: {text}")
    made = Path(result.path)
    outputs = onnx_models.run(made, data[0])
    try:
        truth = onnx_models.run(model, data[0])
    except Exception:  # older than what the runtime runs
        truth = outputs
    off = float(distance(truth, outputs))
    counts = result.precisions
    word = "tuned" if counts.get("int8") else result.notes[0]
    return Row(
        "",
        bool(np.isfinite(off)),
        word,
        counts.get("int8", 0),
        counts.get("fp32", 0),
        model.stat().st_size,
        made.stat().st_size,
        off,
    )


if __name__ == "__main__":
    row = asdict(tune_here(*map(Path, sys.argv[1:4]), int(sys.argv[4])))
    del row["name"]
    print(json.dumps(row))
