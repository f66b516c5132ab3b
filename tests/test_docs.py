"""What the README shows is run; docstring examples, too."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import lpot
from doc_blocks import blocks, commands, run_page, wrong_words

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


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


# test_five_minutes.py brings the model and the images; test_benchmark_docs.py asks for more.
OWN = {"start-images.md", "benchmark.md"}
WITH_CODE = sorted(page for page in (ROOT / "docs").glob("*.md") if blocks(page))
PAGES = [page for page in WITH_CODE if page.name not in OWN]
LONG = ("start-", "pytorch", "pruning")  # pages that train, or measure speed
ALL = [
    pytest.param(page, marks=pytest.mark.slow if page.name.startswith(LONG) else (), id=page.name)
    for page in PAGES
]
FRAMEWORKS = ("onnxruntime", "torch", "tensorflow")


@pytest.mark.parametrize("page", ALL)
def test_every_block_of_every_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "".join(block.text for block in blocks(page) if block.language in ("python", "sh"))
    for framework in FRAMEWORKS:
        if f"import {framework}" in code or ("lpot.demo" in code and framework == "onnxruntime"):
            pytest.importorskip(framework)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for own in ("my_data", "my_net"):  # pages have files of one name
        monkeypatch.delitem(sys.modules, own, raising=False)
    names = run_page(page, tmp_path)
    if "result" in names:
        assert names["result"].met is not False


def test_no_language_escapes() -> None:
    """`text` is for output, `console` for commands with their output: both are never run."""
    known = {"python", "pycon", "sh", "shell", "yaml", "console", "text", "mermaid"}
    for page in (*WITH_CODE, ROOT / "README.md"):
        assert {block.language for block in blocks(page)} <= known, page


def test_examples_at_a_prompt_give_what_they_show() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    page = str(ROOT / "docs" / "metrics.md")
    failed, count = doctest.testfile(page, module_relative=False, optionflags=flags)
    assert count > 20 and failed == 0


READMES = sorted((ROOT / "examples").rglob("README.md"))
TEXTS = [
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *READMES,
]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_shown_exists(page: Path) -> None:
    wrong = {" ".join(c): found for c in commands(page) if (found := wrong_words(c))}
    assert wrong == {}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_sends_users_into_our_rooms(page: Path) -> None:
    if page.name in ("architecture.md", "stability.md", "CONTRIBUTING.md"):
        return
    assert not re.search(r"(from|import|:::) lpot\.jobs\b", page.read_text("utf-8"))


@pytest.mark.parametrize("page", READMES, ids=lambda page: str(page.parent.relative_to(ROOT)))
def test_examples_name_files_and_flags_that_are_there(page: Path) -> None:
    """`make examples` runs the commands on slices of data; here no name of theirs is mistaken."""
    code = "".join(
        file.read_text("utf-8")
        for file in page.parent.rglob("*")
        if file.suffix in (".py", ".sh", ".txt", ".yaml")
    )
    for block in blocks(page):
        if block.language != "shell":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            for word in words:
                if word.startswith("./") or word.endswith((".py", ".sh")):
                    assert (page.parent / word).exists(), line
            if words and words[0].startswith(("./", "python")) and "torch.distributed" not in line:
                flags = [word.partition("=")[0] for word in words if word.startswith("--")]
                missing = [flag for flag in flags if flag not in code and flag[2:] not in code]
                assert missing == [], line


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


def with_examples() -> list[str]:
    source = ROOT / "src"
    files = [
        path.relative_to(source).with_suffix("")
        for path in sorted((source / "lpot").rglob("*.py"))
        if re.search(r"^ +>>> ", path.read_text("utf-8"), re.MULTILINE)
    ]
    return [".".join(path.parts).removesuffix(".__init__") for path in files]


@pytest.mark.parametrize("name", with_examples())
def test_docstring_examples(name: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    failed, tried = doctest.testmod(pytest.importorskip(name), optionflags=flags)
    assert failed == 0 and tried


def test_version_is_said_once() -> None:
    assert lpot.__version__ == "2.0.0"
