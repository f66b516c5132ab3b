"""The five-minute page, followed to the letter by somebody with a ResNet of their own."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from doc_blocks import blocks, run_shell

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "start-images.md"
MOST = 6  # commands


def prepare(folder: Path) -> None:
    """What the reader has: my_data.py as printed, images, and a trained ResNet."""
    from own_resnet import make_images, make_own_resnet

    (block,) = [block for block in blocks(PAGE) if block.file == "my_data.py"]
    (folder / "my_data.py").write_text(block.text, "utf-8")
    make_images(folder / "images")
    make_own_resnet(folder, runpy.run_path(str(folder / "my_data.py"))["read"])


def commands() -> list[str]:
    shown = [block.text for block in blocks(PAGE) if block.language in ("text", "sh")]
    return [line for text in shown for line in text.splitlines() if line.strip()]


def test_six_commands_are_enough() -> None:
    assert len(commands()) <= MOST


def test_the_page_tunes_a_resnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnxruntime", "PIL"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    for block in blocks(PAGE):
        if block.language == "sh":
            run_shell(block, tmp_path)
    assert (tmp_path / "resnet_int8.onnx").is_file()
    report = (tmp_path / "report.html").read_text("utf-8")
    assert re.search(r"Bar met", report)


@pytest.mark.slow
def test_in_a_fresh_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it in a shell that has nothing but Python; pip needs an index."""
    for package in ("onnxruntime", "PIL"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    lines = [line.replace("/path/to/lpot", str(ROOT)) for line in commands()]
    lines[0] = lines[0].replace("python3", shlex.quote(sys.executable))
    script = "set -e\n" + "\n".join(lines)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=1200)
    if "No matching distribution" in done.stderr:
        pytest.skip("pip has no index here")
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "resnet_int8.onnx").is_file()
