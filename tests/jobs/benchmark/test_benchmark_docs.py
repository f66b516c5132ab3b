"""What docs/benchmark.md shows is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "benchmark.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    (conf,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "conf.yaml").write_text(conf, "utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    assert list(names["results"]) == ["accuracy", "performance"]  # type: ignore[call-overload]
    assert 0 < names["accuracy"] <= 1  # type: ignore[operator]
    assert "0.001" in str(names["result"].goal)  # type: ignore[attr-defined]
    assert names["ops"].rows  # type: ignore[attr-defined]
