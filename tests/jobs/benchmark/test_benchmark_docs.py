"""What docs/benchmark.md shows is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from doc_blocks import run_page

PAGE = Path(__file__).parents[3] / "docs" / "benchmark.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    names = run_page(PAGE, tmp_path)
    assert list(names["results"]) == ["accuracy", "performance"]
    assert 0 < names["accuracy"] <= 1
    assert names["result"].met is not False
    assert "0.001" in str(names["result"].goal)
    assert names["ops"].rows
