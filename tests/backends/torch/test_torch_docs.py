"""What the page on PyTorch shows is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
        assert names["result"].met  # type: ignore[attr-defined]
        # Each timing starts two processes that import torch: one of them shows what it shows.
        monkeypatch.setattr("lpot.jobs.finish.result.with_speed", lambda job, result: result)
