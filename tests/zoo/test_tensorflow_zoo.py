"""Any TensorFlow model at first try: it is tuned, or refused in one clear sentence.

Each runs in a child process, several a child; one that kills its child is a failure of its own.
With LPOT_WRITE_DOCS=1 the table docs/zoo_tensorflow.md is written anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from lpot.version import VERSION
from zoo.tensorflow_nets import cases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo_tensorflow.md"
TESTS = Path(__file__).resolve().parents[1]
SHARE = 0.97
IN_ONE_CHILD = 12
PATIENCE = 900
QUICK = (
    "structure: twin pools and sums",
    "structure: attention",
    "odd: channels_first",
    "form: words to integers",
    "form: subclassed, two arguments",
    "fed: a nest of dicts and tuples",
    "fed: devices that are not here",
    "fed: a scale before a product without bias",
    "fed: a ragged tensor",
    "refused: half a file",
)


@dataclass(frozen=True)
class Row:
    name: str
    word: str  # tuned, refused, failed, died
    int8: int = 0
    fp32: int = 0
    told: str = ""

    @property
    def good(self) -> bool:
        if self.word == "refused":
            return self.name.startswith("refused") and len(self.told) > 20 and "\n" not in self.told
        return self.word == "tuned" and not self.name.startswith("refused")


def child(*arguments: str) -> Iterator[dict[str, Any]]:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-m", "zoo.tensorflow_child", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("ZOO "):
            yield json.loads(line[4:])


def rows_of(names: list[str], out: Path) -> list[Row]:
    """A child for them all; where one kills it, another child for the rest."""
    rows: list[Row] = []
    waiting = list(names)
    while waiting:
        begun = ""
        for said in child("tune", str(out), *waiting):
            if said["step"] == "begin":
                begun = said["name"]
                continue
            told = str(said.get("word", ""))
            rows.append(Row(begun, said["step"], said.get("int8", 0), said.get("fp32", 0), told))
            waiting.remove(begun)
            begun = ""
        if waiting:
            dead = begun or waiting[0]
            rows.append(Row(dead, "died"))
            waiting.remove(dead)
    return rows


def judge(rows: list[Row], out: Path) -> None:
    checked = {said["name"]: said["same"] for said in child("check", str(out))}
    tuned = sum(row.word == "tuned" for row in rows)
    assert len(checked) == tuned and all(checked.values()), checked
    assert not [row for row in rows if row.word == "died"]
    bad = [row for row in rows if not row.good]
    share = 1.0 - len(bad) / len(rows)
    assert share >= SHARE, "\n".join(f"{row.name}: {row.word} {row.told}" for row in bad)


def test_a_few_of_each_kind(tmp_path: Path) -> None:
    rows = rows_of(list(QUICK), tmp_path)
    judge(rows, tmp_path)
    assert [row.word for row in rows] == ["tuned"] * 9 + ["refused"]


@pytest.mark.slow
def test_the_zoo(tmp_path: Path) -> None:
    names = list(cases())
    rows = []
    for start in range(0, len(names), IN_ONE_CHILD):
        rows += rows_of(names[start : start + IN_ONE_CHILD], tmp_path)
    if os.environ.get("LPOT_WRITE_DOCS"):
        write(rows)
    assert len(rows) >= 100
    judge(rows, tmp_path)


def write(rows: list[Row]) -> None:
    good = sum(row.good for row in rows)
    lines = [
        "# TensorFlow models that were tried",
        "",
        f"{good} of {len(rows)} were tuned at first try or, where they can't be, refused in one "
        "sentence: `lpot.tune(model, data)` and nothing else. Each ran in a child process; what "
        "was saved gave the same outputs, bit by bit, in stock TensorFlow in a fresh one. "
        f"Weights of the families are random. Written by `tests/zoo` with lpot {VERSION}.",
        "",
        "| model | | ops in INT8 | in FP32 | told |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        told = row.told.replace("|", "/").replace("\n", " ")
        told = " ".join("…" if word.startswith("/tmp") else word for word in told.split())[:140]
        lines.append(f"| {row.name} | {row.word} | {row.int8 or ''} | {row.fp32 or ''} | {told} |")
    PAGE.write_text("\n".join(lines) + "\n", "utf-8")
