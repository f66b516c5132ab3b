"""examples/notebooks/start.ipynb runs from its first cell to its last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebooks" / "start.ipynb"


def cells() -> list[str]:
    raw = json.loads(NOTEBOOK.read_text("utf-8"))
    return ["".join(cell["source"]) for cell in raw["cells"] if cell["cell_type"] == "code"]


def test_it_is_kept_without_outputs() -> None:
    raw = json.loads(NOTEBOOK.read_text("utf-8"))
    assert [c for c in raw["cells"] if c.get("outputs") or c.get("execution_count")] == []


def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, code in enumerate(cells(), start=1):
        exec(compile(code, f"cell {number}", "exec"), names)
    assert names["result"].met is True
    assert (names["logits"].argmax(1) == names["digits"].labels[:5]).mean() >= 0.8
    assert (tmp_path / "digits" / "report.html").is_file()


@pytest.mark.slow
def test_it_runs_in_a_kernel_and_shows_bars_and_a_table(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.read(NOTEBOOK, as_version=4)
    here = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=600, resources=here).execute()
    shown = [output for cell in book.cells for output in cell.get("outputs", [])]
    text = "\n".join(str(output.get("data", {})) for output in shown)
    assert "<table>" in text, "the result shows itself as HTML"
    assert "trial" in text and "bar met" in text
    assert not any(output.output_type == "error" for output in shown)
