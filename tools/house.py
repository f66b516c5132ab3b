"""How large the house is, in the figures that a newcomer feels.

python tools/house.py [ROOT]         the tree as it is, or another checkout's
python tools/house.py [ROOT] --run   and how much of it one tuning of the demo runs
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
# Runs in a process of its own: which files' functions a tuning of the demo's model calls.
TUNING = """
import json, sys, tempfile
seen = set()
def look(frame, event, arg):
    if frame.f_code.co_flags & 1:  # a function, not the body of a module or class
        seen.add(frame.f_code.co_filename)
sys.setprofile(look)
import lpot
from lpot.demo import demo_data, demo_model_path
data = demo_data()
@lpot.takes_session
def accuracy(session):
    (logits,) = session.run(None, {session.get_inputs()[0].name: data.images})
    return float((logits.argmax(1) == data.labels).mean())
with tempfile.TemporaryDirectory() as place:
    calib = [data.calib_images[:50]]
    lpot.tune(demo_model_path(), calib, accuracy, workspace=place, progress=False)
sys.setprofile(None)
loaded = sum(name == "lpot" or name.startswith("lpot.") for name in sys.modules)
print(json.dumps([sorted(name for name in seen if "/lpot/" in name), loaded]))
"""


class House:
    """One package, read file by file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "src" / "lpot"
        self.texts = {path: path.read_text("utf-8") for path in sorted(self.package.rglob("*.py"))}
        self.trees = {path: ast.parse(text) for path, text in self.texts.items()}
        self.modules = {self.name(path): path for path in self.texts}

    def name(self, path: Path) -> str:
        parts = ("lpot", *path.relative_to(self.package).with_suffix("").parts)
        return ".".join(parts).removesuffix(".__init__")

    def figures(self) -> Iterator[tuple[str, str]]:
        lines = sum(len(text.splitlines()) for text in self.texts.values())
        code, comments = self._code_and_comments()
        yield "files / lines", f"{len(self.texts)} / {lines / 1000:.1f} k"
        yield "code lines", f"{code / 1000:.1f} k"
        folder, count = Counter(path.parent for path in self.texts).most_common(1)[0]
        yield "most files in one folder", f"{count} ({folder.relative_to(self.package)})"
        single = [name for name, users in self._importers().items() if len(users) == 1]
        size = sum(len(self.texts[self.modules[name]].splitlines()) for name in single)
        yield "modules with exactly one importer", f"{len(single)} ({size / 1000:.1f} k lines)"
        imports = sum(self._import_lines(tree) for tree in self.trees.values())
        yield "import lines %", f"{100 * imports / lines:.1f}"
        yield "comments per 100 lines of code", f"{100 * comments / code:.1f}"
        yield "class names that stand in several files", str(self._shared_names())

    def _code_and_comments(self) -> tuple[int, int]:
        """Lines that hold code, docstrings aside; lines that hold a comment."""
        code = comments = 0
        for path, text in self.texts.items():
            held: set[int] = set()
            docs = self._docstring_lines(self.trees[path])
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    comments += 1
                elif token.type not in _BLANK:
                    held.update(range(token.start[0], token.end[0] + 1))
            code += len(held - docs)
        return code, comments

    @staticmethod
    def _docstring_lines(tree: ast.Module) -> set[int]:
        found: set[int] = set()
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            first = body[0] if isinstance(body, list) and body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        return found

    def _importers(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for path, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
                else:
                    continue
                for name in names:
                    if name in self.modules and self.modules[name] != path:
                        found[name].add(self.name(path))
        return found

    @staticmethod
    def _import_lines(tree: ast.Module) -> int:
        kinds = (ast.Import, ast.ImportFrom)
        nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)

    def _shared_names(self) -> int:
        places: dict[str, set[Path]] = defaultdict(set)
        for path, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].add(path)
        return sum(len(paths) > 1 for paths in places.values())

    def run(self) -> Iterator[tuple[str, str]]:
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src")}
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-c", TUNING]
            made = subprocess.run(
                command, cwd=place, env=environment, capture_output=True, text=True, check=True
            )
        files, loaded = json.loads(made.stdout.splitlines()[-1])
        lines = sum(len(Path(name).read_text("utf-8").splitlines()) for name in files)
        told = f"{len(files)} ({lines / 1000:.1f} k lines)"
        yield "files whose functions run in one ONNX tuning", told
        yield "modules loaded for a digits net", str(loaded)


_BLANK = (
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=HERE)
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args()
    house = House(given.root)
    rows = [*house.figures(), *(house.run() if given.run else ())]
    width = max(len(name) for name, _ in rows)
    for name, figure in rows:
        print(f"{name:<{width}}  {figure}")


if __name__ == "__main__":
    main()
