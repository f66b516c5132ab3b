"""`make bench`: words, what is left out with a word, and rows as they are known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks"


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Code beside the benchmark's modules, whose names are too common for this process."""
    path = os.pathsep.join((str(FOLDER), str(ROOT / "src")))
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
    )


STUB = """
import sys, types
import run
stub = types.ModuleType("stub")
stub.NETS = {"tf_small": 1, "large": 2}
def works(names, board):
    for name in names:
        board.row(name, "ours", "1.0 ms", "2.00")
        board.keep("one", name, {"ratio": 2.0})
        print("known:", sorted(board.results["one"]), board.path.exists())
def fails(names, board):
    raise RuntimeError("no luck")
stub.works, stub.fails = works, fails
sys.modules["stub"] = stub
run.SECTIONS = {
    "two": run.Section("stub:fails", ()),
    "one": run.Section("stub:works", (), "stub:NETS"),
    "gone": run.Section("stub:works", ("no_such_package",), "stub:NETS"),
}
"""


def main(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = f"from pathlib import Path\nrun.CACHE = Path({str(folder / 'bench')!r})\n"
    return run(f"{STUB}\n{code}sys.exit(run.main())", *words)


def test_rows_come_one_by_one_with_the_kind_and_a_failure_stops_nothing(tmp_path: Path) -> None:
    done = main(tmp_path)
    lines = done.stdout.splitlines()
    (path,) = tmp_path.glob("bench-*.json")
    kind = path.stem.removeprefix("bench-")
    assert [line.split()[:2] for line in lines if "1.0 ms" in line] == [
        [kind, "tf_small"],
        [kind, "large"],
    ]
    assert "known: ['tf_small'] True" in lines  # on disk before the next one is begun
    assert "gone is left out: it needs pip install no_such_package" in lines
    assert "two failed: no luck" in lines and done.returncode == 1
    kept = json.loads(path.read_text())
    assert kept["cpu"]["kind"] == kind and set(kept["one"]) == {"tf_small", "large"}


def test_one_net_of_one_section(tmp_path: Path) -> None:
    done = main(tmp_path, "one", "small")
    assert done.returncode == 0, done.stderr
    assert "known: ['tf_small'] True" in done.stdout and "large" not in done.stdout
    done = main(tmp_path, "large")  # of all sections that have it; what is known stays
    assert done.returncode == 0 and "known: ['large', 'tf_small'] True" in done.stdout


def test_a_wrong_word_lists_what_there_is(tmp_path: Path) -> None:
    done = main(tmp_path, "one", "tiny")
    assert done.returncode == 2 and "called tiny" in done.stderr and "tf_small" in done.stderr
    assert "needs no_such_package" in done.stderr
    assert not list(tmp_path.glob("*.json"))


SECTIONS = """
import pathlib, re, sys
import run
for section in run.SECTIONS.values():
    for place in filter(None, (section.function, section.nets)):
        module, _, name = place.partition(":")
        text = pathlib.Path(run.__file__).with_name(f"{module}.py").read_text()
        assert re.search(rf"^(def )?{name}\\b", text, re.M), place
assert not {"torch", "tensorflow", "onnxruntime"} & set(sys.modules)
"""


def test_every_section_exists_and_its_framework_is_imported_only_to_run_it() -> None:
    done = run(SECTIONS)
    assert done.returncode == 0, done.stderr


RACE = """
import sys
from pathlib import Path
import numpy as np
from board import Board
from lpot.jobs.benchmark.contestant import Contestant
made = [Contestant("pace:walker", "callable", label, arguments={"seconds": seconds})
        for label, seconds in (("FP32", 0.004), ("ours", 0.002), ("peer", -1.0))]
Board(Path(sys.argv[1])).race("one", "net", "Net", made, {"x": np.zeros(1)}, 1.5, 0.1)
"""
PACE = """
import time
from lpot.core.batch import InputSpec
def walker(seconds):
    if seconds < 0:
        raise RuntimeError("a long story " * 40)
    return (lambda feed: time.sleep(seconds)), [InputSpec("x", "float64", (1,))]
"""


def test_a_race_has_the_quickest_rounds_and_a_failure_one_line(tmp_path: Path) -> None:
    (tmp_path / "pace.py").write_text(PACE)
    done = run(f"import sys; sys.path.append({str(tmp_path)!r})\n{RACE}", str(tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    rows = {line.split()[2]: line for line in done.stdout.splitlines() if " Net " in line}
    assert set(rows) == {"FP32", "ours", "peer", "goal"}
    assert "1.00 by the quickest rounds" in rows["FP32"]
    assert "by the quickest rounds" in rows["ours"]
    assert "failed: " in rows["peer"] and rows["peer"].endswith("[...]")
