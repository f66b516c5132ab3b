"""Any PyTorch model at first try: it is tuned, or refused in one clear sentence.

Writes the table docs/zoo_pytorch.md. About a quarter of an hour of CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]
CHILD = ROOT / "tests" / "zoo" / "torch_zoo.py"
PAGE = ROOT / "docs" / "zoo_pytorch.md"
AT_ONCE = 60  # architectures of one child: importing costs more than tuning
SHARE = 0.98
NEAR = 30  # dB: as near to FP32 as anybody asks of 8 bits
MARGIN = 6  # dB that INT8 may lie below what rounding alone would cost
MINUTES = 25

Row = dict[str, Any]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(CHILD), *words],
        capture_output=True,
        text=True,
        env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path},
        timeout=60 * MINUTES,
        check=False,
    )


def children(step: str, folder: Path, names: list[str]) -> Iterator[Row]:
    """One row per name, in their order; as many children at once as there are cores."""
    parts = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for rows in pool.map(lambda part: list(child(step, folder, part)), parts):
            yield from rows


def child(step: str, folder: Path, names: list[str]) -> Iterator[Row]:
    """A child that dies is known by the name it told last; another one goes on."""
    left = list(names)
    while left:
        done = run(step, str(folder), *left)
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        rows = [row for row in told if len(row) > 1]
        yield from rows
        known = {row["name"] for row in rows}
        under_way = [row["name"] for row in told if row["name"] not in known]
        for name in under_way:
            yield {"name": name, "word": "crashed", "why": f"exit status {done.returncode}"}
        tried = known | set(under_way)
        assert tried, f"no architecture was begun:\n{done.stderr[-2000:]}"
        left = [name for name in left if name not in tried]


def test_a_crash_is_told_and_the_rest_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    script = tmp_path / "child.py"
    script.write_text(
        "import json, os, sys\n"
        "for name in sys.argv[3:]:\n"
        "    print(json.dumps({'name': name}), flush=True)\n"
        "    if name == 'b': os.abort()\n"
        "    print(json.dumps({'name': name, 'word': 'tuned'}), flush=True)\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "CHILD", script)
    rows = {row["name"]: row["word"] for row in children("tune", tmp_path, ["a", "b", "c"])}
    assert rows == {"a": "tuned", "b": "crashed", "c": "tuned"}


@pytest.mark.slow
def test_the_zoo(tmp_path: Path) -> None:
    names = json.loads(run("names").stdout)
    rows = {row["name"]: row for row in children("tune", tmp_path, names)}
    tuned = [name for name, row in rows.items() if row["word"] == "tuned"]
    for row in children("reload", tmp_path, tuned):
        rows[row["name"]]["reload"] = row.get("same", row.get("why"))
    write(list(rows.values()))
    assert len(rows) >= 100, "timm, torchvision or transformers is missing: pip install lpot[zoo]"
    bad = [row for row in rows.values() if not is_good(row)]
    assert len(bad) <= (1 - SHARE) * len(rows), bad
    assert not [row for row in bad if row["word"] == "crashed"], bad


def is_good(row: Row) -> bool:
    if row["word"] == "refused":
        return bool(row["good"])
    whole = row.get("copies") is True and row.get("reload") is True
    return row["word"] == "tuned" and whole and is_near(row["sqnr"], row["rounding"])


def is_near(sqnr: float | None, rounding: float | None) -> bool:
    """As near to FP32 as 8 bits allow in this net (zoo/torch_rounding.py)?"""
    if sqnr is None:
        return True
    return sqnr >= (NEAR if rounding is None else min(NEAR, rounding - MARGIN))


def test_near_is_what_rounding_allows() -> None:
    assert is_near(7.0, 8.0) and is_near(31.0, 60.0) and is_near(None, None)
    assert not is_near(12.0, 25.0) and not is_near(29.0, None)


def write(rows: list[Row]) -> None:
    tuned = sum(row["word"] == "tuned" and is_good(row) for row in rows)
    refused = sum(row["word"] == "refused" and is_good(row) for row in rows)
    lines = [
        "# PyTorch models tried",
        "",
        "<!-- Written by tests/zoo/test_torch_zoo.py. -->",
        "",
        "Architectures with random weights, tuned as a newcomer would do it: one call of",
        "`lpot.tune` with three batches and no other option. Each is then copied (`copy.deepcopy`)",
        "and loaded in a fresh process; both must give the same outputs, bit for bit. SQNR is the",
        "distance of the first output from FP32 on all batches, in decibels; beside it what",
        "rounding to 8 bits alone costs there: FP32 with as much noise in every weight and input.",
        "Deep nets of random weights amplify it, trained ones don't. INT8 must come near to that.",
        "",
        f"{tuned} of {len(rows)} are tuned at first try and as near to FP32 as 8 bits allow;",
        f"{refused} are refused in one clear sentence, because they can't be tuned.",
        "",
        "| architecture | INT8 ops | of | SQNR | rounding alone | copy | fresh process | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    PAGE.write_text("\n".join([*lines, *map(line, rows)]) + "\n", encoding="utf-8")


def line(row: Row) -> str:
    if row["word"] != "tuned":
        why = str(row.get("why", "")).replace("|", "/").splitlines()
        return f"| {row['name']} | | | | | | | {row['word']}: {why[0] if why else ''} |"
    sqnr, rounding = ("" if x is None else f"{x:.0f}" for x in (row["sqnr"], row["rounding"]))
    same = {True: "equal", False: "differs"}
    reload = same.get(row.get("reload"), "fails")  # type: ignore[arg-type]
    cells = (
        row["name"],
        row["int8"],
        row["total"],
        sqnr,
        rounding,
        same[row["copies"]],
        reload,
        "",
    )
    return f"| {' | '.join(map(str, cells))} |"
