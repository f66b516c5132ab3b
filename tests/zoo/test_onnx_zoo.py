"""Any ONNX model at first try: it is tuned, or refused in one clear sentence.

With LPOT_WRITE_DOCS=1 the table of docs/onnx.md is written anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from lpot.core.errors import LpotError
from zoo import onnx_generated, onnx_packages

PAGE = Path(__file__).resolve().parents[2] / "docs" / "onnx.md"
MARKS = ("<!-- zoo -->", "<!-- end of zoo -->")
SHARE = 0.97


@dataclass(frozen=True)
class Row:
    name: str
    good: bool
    int8: int
    fp32: int
    size: str
    word: str


def attempt(name: str, model: Any, data: list[dict[str, np.ndarray]], folder: Path) -> Row:
    """One tuning as a newcomer would do it, and what came of it."""
    try:
        result = lpot.tune(model, data, workspace=folder, measure_speed=False)
    except LpotError as error:
        text = str(error)
        return Row(name, "\n" not in text and len(text) > 20, 0, 0, "", f"refused: {text[:90]}")
    except Exception as error:
        return Row(name, False, 0, 0, "", f"{type(error).__name__}: {str(error)[:90]}")
    found = result.precisions
    made = onnx_models.run(result.path, data[0])
    source = onnx.load(str(model)) if isinstance(model, Path) else model
    finite = all(np.isfinite(a).all() for a in made if getattr(a, "dtype", None) == np.float32)
    before, after = source.ByteSize() / 1e6, Path(result.path).stat().st_size / 1e6
    size = f"{before:.2f} → {after:.2f}"
    return Row(name, finite, found.get("int8", 0), found.get("fp32", 0), size, "tuned")


def judge(rows: Iterable[Row]) -> None:
    listed = list(rows)
    bad = [row for row in listed if not row.good]
    assert len(bad) <= (1 - SHARE) * len(listed), "\n".join(f"{r.name}: {r.word}" for r in bad)


@pytest.mark.slow
def test_generated_models_of_every_opset(tmp_path: Path) -> None:
    rows = [
        attempt(name, model, onnx_generated.feeds(model), tmp_path / str(index))
        for index, (name, model) in enumerate(onnx_generated.generated())
    ]
    assert len(rows) >= 100
    judge(rows)
    assert all(row.int8 for row in rows if row.word == "tuned")


def test_the_oldest_and_the_newest_opset(tmp_path: Path) -> None:
    ends = (onnx_generated.OPSETS[0], onnx_generated.OPSETS[-1])
    for index, (name, maker) in enumerate(onnx_generated.FAMILIES.items()):
        model = maker(ends[index % 2])
        row = attempt(name, model, onnx_generated.feeds(model), tmp_path / str(index))
        assert row.good and row.int8, row


@pytest.mark.slow
def test_models_that_packages_ship(tmp_path: Path) -> None:
    models = dict(onnx_packages.packaged(tmp_path / "unpacked"))
    if not models:
        pytest.skip(f"no package with models is at hand: {onnx_packages.HELP}")
    rows = []
    for index, (name, path) in enumerate(models.items()):
        data = onnx_packages.feeds(path)
        if data:
            rows.append(attempt(name, path, data, tmp_path / str(index)))
    judge(rows)
    if os.environ.get("LPOT_WRITE_DOCS"):
        write(rows, [name for name in models if name not in {row.name for row in rows}])


def write(rows: list[Row], untried: list[str]) -> None:
    lines = ["| model | ops in INT8 | in FP32 | MB | |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {r.name} | {r.int8} | {r.fp32} | {r.size} | {r.word} |" for r in rows]
    if untried:
        lines += ["", f"Not tried, for no made-up input fits: {', '.join(untried)}."]
    before, rest = PAGE.read_text("utf-8").split(MARKS[0])
    _, after = rest.split(MARKS[1])
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}", "utf-8")
