"""CONTRIBUTING's table leads to files and lists that are there, and following it is enough."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lpot
from follow_contributing import ADDITIONS, RUN_ALL

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| a")]
SPOTS = (ROOT, ROOT / "src" / "lpot")


def found(path: str, rest: str) -> bool:
    """Is it there: from the checkout, from the package, or beside what the row named before?"""
    if any((spot / path).exists() for spot in SPOTS):
        return True
    before = [Path(other).parent / path for other in re.findall(r"`([\w./]+\.py)`", rest)]
    places = [
        *before,
        *(Path("backends") / name / path for name in ("onnx", "torch", "tensorflow")),
    ]
    return any((spot / place).exists() for spot in SPOTS for place in places) or bool(
        [*(ROOT / "tests").rglob(path)]
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_files_of_the_table_exist(row: str) -> None:
    named = re.findall(r"`([\w./<>]+(?:\.py|/))`", row)
    wanted = [path for path in named if "<" not in path]
    assert named or "`lpot." in row, "a row that leads nowhere"
    assert [path for path in wanted if not found(path, row)] == []


@pytest.mark.parametrize(
    "name, path", re.findall(r"`([A-Z]{4,})`[^|`]*?of `([\w./]+\.py)`", " ".join(ROWS))
)
def test_lists_of_the_table_are_where_it_says(name: str, path: str) -> None:
    file = next(spot / path for spot in SPOTS if (spot / path).exists())
    assert re.search(rf"^{name}\b.* = ", file.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", PAGE, re.MULTILINE)))
)
def test_targets_that_are_named_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], dict[str, str]]:
    """All additions made in one copy of the package, and used: name → what went wrong."""

    @functools.cache
    def made(slow: bool) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("followed")
        package = Path(shutil.copytree(Path(lpot.__file__).parent, folder / "src" / "lpot"))
        uses = folder / "uses"
        uses.mkdir()
        for name, addition in ADDITIONS.items():
            addition.made(package)
            if addition.slow == slow:
                (uses / f"{name}.py").write_text(addition.use, "utf-8")
        path = os.pathsep.join([str(package.parent), str(ROOT / "tests")])
        # `make coverage` does not count a copy.
        ours = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
        done = subprocess.run(
            [sys.executable, "-c", RUN_ALL, str(uses)],
            capture_output=True,
            text=True,
            env={**ours, "PYTHONPATH": path},
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return dict(json.loads(done.stdout.splitlines()[-1]))

    return made


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(name, marks=pytest.mark.slow if addition.slow else ())
        for name, addition in ADDITIONS.items()
    ],
)
def test_following_a_row_is_enough(followed: Callable[[bool], dict[str, str]], row: str) -> None:
    for package in ("onnxruntime", *(("torch", "tensorflow") if ADDITIONS[row].slow else ())):
        pytest.importorskip(package)
    assert any(line.startswith(f"| {row} ") for line in ROWS)
    wrong = followed(ADDITIONS[row].slow)
    assert row not in wrong, wrong[row]
