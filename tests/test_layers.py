"""Who may import whom, read from the source: imports inside functions count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "lpot"
FRAMEWORKS = {"openvino", "onnx", "onnxruntime", "torch", "tensorflow", "keras", "mxnet", "tf2onnx"}
# typing_extensions is for type checkers alone; pydantic checks the files that are read back.
CORE_MAY = {"numpy", "typing_extensions", "pydantic"}
ROOMS = {
    "core": {"core"},
    "config": {"core", "config"},
    "strategy": {"core", "strategy"},
    "metric": {"core", "metric"},
    "data": {"core", "data"},
    "report": {"core", "report"},
    "jobs": {
        "core",
        "config",
        "strategy",
        "metric",
        "data",
        "report",
        "backends",
        "jobs",
        "version",
        "demo",
    },
    "testing": {"core", "jobs", "testing", "backends"},
    "demo": {"demo"},
    "backends": {"core", "data", "backends"},
}
OVER = {"openvino": "onnx"}  # a runtime's backend, over that of the files it runs
FILES = sorted(ROOT.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


def place(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).with_suffix("").parts


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_stay_in_their_rooms(path: Path) -> None:
    room, *rest = place(path)
    for name in imports(path):
        top, _, below = name.partition(".")
        if top in FRAMEWORKS:
            assert room == "backends", (
                f"{path.name} imports {name}: frameworks live under backends/"
            )
            continue
        if top != "lpot":
            continue
        assert below, f"{path.name} imports the package root"
        target = below.split(".")
        if room in ROOMS:
            assert target[0] in ROOMS[room], f"{room} may not import {name}"
        if room == "jobs" and target[0] == "backends":
            assert len(target) == 1, f"{path.name} reaches into {name}: use get_backend"
        if room == "backends" and target[0] == "backends" and len(target) > 1:
            allowed = {rest[0], OVER.get(rest[0], "")} if rest else set()
            assert target[1] in allowed, f"{path.name} imports another backend: {name}"


@pytest.mark.parametrize("path", sorted((ROOT / "core").rglob("*.py")), ids=lambda path: path.name)
def test_core_needs_only_numpy(path: Path) -> None:
    import sys

    for name in imports(path):
        top = name.split(".")[0]
        assert top in sys.stdlib_module_names or top in CORE_MAY or top == "lpot", name


def test_no_module_has_an_empty_name_for_everything() -> None:
    doors = {("utils", "__init__"), ("utils", "utility"), ("utils", "pytorch")}
    doors |= {
        ("common",),
        ("experimental", "common", "__init__"),
        ("experimental", "common", "criterion"),
        ("experimental", "common", "optimizer"),
        ("utils", "logger"),
        ("adaptor", "tf_utils", "util"),
        ("adaptor", "tf_utils", "__init__"),
    }
    vague = {"utils", "util", "helper", "helpers", "common", "misc"}
    for path in FILES:
        parts = place(path)
        assert parts in doors or not vague & set(parts), path


def test_files_stay_readable() -> None:
    long = {
        str(path.relative_to(ROOT)): n
        for path in FILES
        if (n := len(path.read_text().splitlines())) > 500
    }
    assert not long


def is_broad(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    name = getattr(node.type, "id", "") if node.type is not None else "Exception"
    return name in ("Exception", "BaseException")


def test_broad_excepts_stand_where_they_are_known() -> None:
    """The loop's attempt, the command line's last line, and the benchmark's child."""
    known = {"core/tune.py", "cli/__init__.py", "jobs/benchmark/contestant.py"}
    found = {
        str(path.relative_to(ROOT))
        for path in FILES
        if any(is_broad(node) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    }
    assert found <= known
