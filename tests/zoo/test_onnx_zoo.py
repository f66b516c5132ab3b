"""Any ONNX model at first try: it is tuned, or refused in one clear sentence.

LPOT_WRITE_DOCS=1 pytest -m slow tests/zoo/test_onnx_zoo.py    writes docs/zoo_onnx.md anew
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from zoo import onnx_generated, onnx_odd, onnx_packages
from zoo.onnx_attempt import Row, attempt, tune_here

PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo_onnx.md"
SHARE = 0.97
REFUSED = {"unknown domain"}
NOTHING = {"bfloat16", "double"}  # to quantize in them


def tried(models: Mapping[str, onnx.ModelProto], folder: Path, maker: object) -> list[Row]:
    rows = []
    for index, (name, model) in enumerate(models.items()):
        path = folder / f"{index}.onnx"
        onnx.save(model, str(path))
        data = maker.feeds(model)  # type: ignore[attr-defined]
        rows.append(attempt(name, path, data, folder / str(index)))
    return rows


def judge(rows: Iterable[Row]) -> None:
    listed = list(rows)
    bad = [row for row in listed if not row.good]
    assert len(bad) <= (1 - SHARE) * len(listed), "\n".join(f"{r.name}: {r.word}" for r in bad)


@pytest.mark.slow
def test_more_than_a_hundred_models(tmp_path: Path) -> None:
    """Generated nets of every opset, odd ones, and those that packages ship, where at hand."""
    generated = tried(dict(onnx_generated.generated()), tmp_path / "generated", onnx_generated)
    odd = tried({name: make() for name, make in onnx_odd.ODD.items()}, tmp_path / "odd", onnx_odd)
    real, untried = _packaged(tmp_path)
    if os.environ.get("LPOT_WRITE_DOCS") and real:
        PAGE.write_text(page(generated, odd, real, untried), "utf-8")
    assert len(generated) + len(odd) >= 150
    judge([*generated, *odd])
    judge(real)
    assert all(row.int8 for row in generated), [row for row in generated if not row.int8]
    assert {row.name for row in odd if row.word.startswith("refused")} == REFUSED


def _packaged(folder: Path) -> tuple[list[Row], list[str]]:
    rows, untried = [], []
    for index, (name, path) in enumerate(onnx_packages.packaged(folder / "unpacked").items()):
        data = onnx_packages.feeds(path)
        if data:
            rows.append(attempt(name, path, data, folder / "real" / str(index)))
        else:
            untried.append(name)
    return rows, untried


def test_the_oldest_and_the_newest_opset(tmp_path: Path) -> None:
    ends = (onnx_generated.OPSETS[0], onnx_generated.OPSETS[-1])
    for index, (name, maker) in enumerate(onnx_generated.FAMILIES.items()):
        model = maker(ends[index % 2])
        row = _here(name, model, onnx_generated.feeds(model), tmp_path)
        assert row.good and row.int8, row


@pytest.mark.parametrize("name", onnx_odd.ODD)
def test_odd_models(name: str, tmp_path: Path) -> None:
    model = onnx_odd.ODD[name]()
    row = _here(name, model, onnx_odd.feeds(model), tmp_path)
    assert row.good and row.error < 2e-3, row
    if name in REFUSED:
        assert row.word.startswith("refused")
    elif name in NOTHING:
        assert row.int8 == 0 and "no op of this model can be quantized" in row.word
    else:
        assert row.int8 > 0, row


def test_a_crash_of_the_child_is_told(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no model at all, but long enough")
    row = attempt("damaged", damaged, [{"x": np.ones(1, np.float32)}], tmp_path)
    assert row.good and row.word.startswith("refused: ")
    row = attempt("missing feeds", tmp_path, [], tmp_path / "other")
    assert row.good is False or row.word.startswith("refused")


def _here(name: str, model: onnx.ModelProto, data: list[onnx_odd.Feed], folder: Path) -> Row:
    """In this process, for it starts quicker."""
    path, feeds = folder / f"{name}.onnx", folder / f"{name}.npz"
    onnx.save(model, str(path))
    np.savez(feeds, **{f"{i}\t{key}": one[key] for i, one in enumerate(data) for key in one})
    return tune_here(path, feeds, folder / name, len(data))


# -- the page ------------------------------------------------------------------------------------


def page(generated: list[Row], odd: list[Row], real: list[Row], untried: list[str]) -> str:
    rows = [*generated, *odd, *real]
    good = sum(row.good for row in rows)
    parts = [
        "# ONNX models that were tried",
        "",
        "Written by `LPOT_WRITE_DOCS=1 pytest -m slow tests/zoo/test_onnx_zoo.py`. Each model is",
        "tuned with three made-up samples in a process of its own, saved, opened again and",
        f"compared with FP32. {good} of {len(rows)} were tuned or refused in one clear sentence.",
        "*Error* is the squared error of the outputs over their square, with random inputs.",
        "",
        "## Shipped by packages",
        "",
        *_table(real),
    ]
    if untried:
        parts += ["", f"Not tried, for no made-up input fits: {', '.join(untried)}."]
    parts += ["", "## Odd ones", "", *_table(odd), "", "## Generated, opsets 7 to 23", ""]
    parts += _grid(generated)
    return "\n".join(parts) + "\n"


def _table(rows: list[Row]) -> list[str]:
    head = ["| model | INT8 ops | FP32 | MB | error | |", "| --- | --- | --- | --- | --- | --- |"]
    return head + [
        f"| {r.name} | {r.int8} | {r.fp32} | {_size(r)} | {r.error:.1e} | {r.word} |"
        if r.after
        else f"| {r.name} | | | | | {r.word} |"
        for r in rows
    ]


def _size(row: Row) -> str:
    digits = 1 if row.before > 1e5 else 3
    return f"{row.before / 1e6:.{digits}f} → {row.after / 1e6:.{digits}f}"


def _grid(rows: list[Row]) -> list[str]:
    """Families by opset: ops in INT8, or what was said."""
    families = list(onnx_generated.FAMILIES)
    found = {row.name: row for row in rows}
    lines = ["INT8 ops of", "", f"| opset | {' | '.join(families)} |"]
    lines.append("| --- |" + " --- |" * len(families))
    for opset in onnx_generated.OPSETS:
        cells = [found[f"{family}, opset {opset}"] for family in families]
        words = [str(row.int8) if row.good and row.int8 else row.word for row in cells]
        lines.append(f"| {opset} | {' | '.join(words)} |")
    return lines
