"""What the README shows is run; docstring examples, too."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import lpot

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ROOMS = ("core", "strategy", "metric", "config", "data", "jobs", "report")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    first, second = blocks("python")
    names: dict[str, object] = {}
    exec(compile(first, "README.md", "exec"), names)
    result = names["result"]
    assert result.met is True  # type: ignore[attr-defined]
    assert result.evaluations > 2, "a search should be seen"  # type: ignore[attr-defined]
    assert (tmp_path / "digits_int8.onnx").exists()
    (tmp_path / "conf.yaml").write_text(blocks("yaml")[0], "utf-8")
    from lpot.demo import demo_model_path

    (tmp_path / "model.onnx").write_bytes(demo_model_path().read_bytes())
    data = names["data"]
    images = data.calib_images  # type: ignore[attr-defined]
    names["loader"] = [images[i : i + 50] for i in range(0, 500, 50)]
    exec(compile(second, "README.md", "exec"), names)
    assert names["quantizer"].result.met is True  # type: ignore[attr-defined]


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
