"""What users rely on stays: docs/stability.md."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("names", ROOT / "tools" / "public_names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_public_name_is_gone(tool: Any) -> None:
    recorded = tool.LIST.read_text("utf-8").splitlines()
    gone = sorted(set(recorded) - set(tool.public_names()))
    assert not gone, "taken away without a deprecation (docs/stability.md): " + ", ".join(gone)


def test_the_list_sees_functions_classes_and_commands(tool: Any) -> None:
    names = tool.public_names()
    assert {"lpot.tune(goal)", "lpot.Result.met", "lpot.Goal.relative"} <= set(names)
    assert {"$ lpot tune --target", "$ lpot doctor", "$ lpot inspect model"} <= set(names)
    assert names == sorted(set(names))


def test_the_policy_names_what_the_list_holds() -> None:
    page = (ROOT / "docs" / "stability.md").read_text("utf-8")
    assert "tests/public_names.txt" in page and "two minor versions" in page
