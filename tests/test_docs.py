"""What the README shows is run; docstring examples, too."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import lpot
from doc_blocks import run_page

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ROOMS = ("core", "strategy", "metric", "config", "data", "jobs", "report")


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of it, in order: Python, yaml and shell."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    names = run_page(ROOT / "README.md", tmp_path)
    assert names["result"].met is True
    assert names["result"].evaluations > 2, "a search should be seen"
    assert names["quantizer"].result.met is True
    for name in ("digits_int8.onnx", "int8.onnx", "conf.yaml"):
        assert (tmp_path / name).is_file(), name


def test_readme_names_the_commands() -> None:
    assert "make demo" in README
    assert "make test" in README
    assert "pip install lpot" not in README


def modules() -> list[str]:
    found = []
    for room in ROOMS:
        package = importlib.import_module(f"lpot.{room}")
        found += [f"lpot.{room}"]
        found += [info.name for info in pkgutil.walk_packages(package.__path__, f"lpot.{room}.")]
    return found


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert failed == 0


def test_version_is_said_once() -> None:
    assert lpot.__version__ == "2.0.0"
