"""CONTRIBUTING's table leads to files and lists that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
