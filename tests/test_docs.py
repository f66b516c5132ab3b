"""What the README shows is run; docstring examples, too."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
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


PAGES = {
    "howto-data.md": "onnxruntime",
    "howto-deploy.md": "onnxruntime",
    "seven-bits.md": "onnxruntime",
}


STARTS = {
    "start-onnx.md": "onnxruntime",
    "start-pytorch.md": "torch",
    "start-tensorflow.md": "tensorflow",
}
SLOW = [pytest.param(page, marks=pytest.mark.slow) for page in STARTS]  # they measure speed


@pytest.mark.parametrize("page", [*PAGES, *SLOW])
def test_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip({**PAGES, **STARTS}[page])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for own in ("my_data", "my_net"):  # pages have files of one name
        monkeypatch.delitem(sys.modules, own, raising=False)
    names = run_page(ROOT / "docs" / page, tmp_path)
    if "result" in names:
        assert names["result"].met is True


def test_every_page_is_on_the_site() -> None:
    listed = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_the_site_builds(tmp_path: Path) -> None:
    """Links and references that lead nowhere are errors."""
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "tune" in (tmp_path / "reference" / "index.html").read_text("utf-8")


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
