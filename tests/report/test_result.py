"""What a Result looks like in a prompt, in a notebook and in pandas."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from lpot.core.results.report import OpRow


def test_a_result_prints_its_verdict_in_a_few_lines(result: Any) -> None:
    lines = repr(result()).splitlines()
    assert lines[0].startswith("bar met: accuracy 0.895 against 0.9 in FP32")
    assert len(lines) < 10
    assert any("2.00 [2.00 to 2.00] times as fast" in line for line in lines)
    assert all("TensorConfig" not in line for line in lines)


def test_a_notebook_gets_a_table_with_everything_escaped(result: Any) -> None:
    html = result(notes=("<script>alert(1)</script>",))._repr_html_()
    assert "<table>" in html and "bar met" in html
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_a_model_says_what_it_is(result: Any) -> None:
    model = result().model
    model.backend = SimpleNamespace(name="onnx")
    model.met = True
    assert repr(model) == "<lpot model for onnx: FP32, 0 bytes, meets the bar>"


def test_pandas_gets_trials_and_ops(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(DataFrame=list)
    monkeypatch.setitem(sys.modules, "pandas", fake)
    found = result(ops=(OpRow("conv1", "Conv", "int8"),))
    assert [row["number"] for row in found.to_pandas()] == [1, 2]
    assert found.to_pandas("ops")[0]["precision"] == "int8"
    with pytest.raises(ValueError, match="'trials' or 'ops'"):
        found.to_pandas("rows")


def test_without_pandas_it_says_what_to_install(
    result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        result().to_pandas()
