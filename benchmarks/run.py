"""`make bench`: speed, calibration, build, import and data, against peers and against goals.

    python benchmarks/run.py                        everything: about an hour
    python benchmarks/run.py speed torch            these sections
    python benchmarks/run.py tensorflow resnet50    one net of one section
    python benchmarks/run.py --list                 the sections and their nets

Rows are printed as they are known and written to build/bench-<kind of CPU>.json. Ratios mean
something only on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import logging
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from board import Board
from models import CACHE

from lpot.core.errors import LpotError


@dataclass(frozen=True)
class Section:
    """Where it is, what it needs, and where its nets are, as module:name."""

    function: str
    needs: tuple[str, ...]
    nets: str = ""

    def run(self, names: Sequence[str], board: Board) -> None:
        _named(self.function)(names, board)

    def missing(self) -> list[str]:
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def names(self) -> list[str]:
        return list(_named(self.nets)) if self.nets and not self.missing() else []


_ONNX = ("onnxruntime", "torch", "transformers", "onnxscript")  # nets are exported from PyTorch
SECTIONS = {
    "import": Section("costs:import_time", ()),
    "data": Section("costs:data", ("tensorflow", "PIL")),
    "build": Section("onnx_speed:build", _ONNX, "models:NETS"),
    "speed": Section("onnx_speed:speed", _ONNX, "models:NETS"),
    "calibration": Section("onnx_speed:calibration", _ONNX, "models:NETS"),
    "runtimes": Section("runtimes:runtimes", (*_ONNX, "openvino"), "runtime_nets:RUNTIME_NETS"),
    "tensorflow": Section("tensorflow_speed:tensorflow", ("tensorflow",), "tensorflow_nets:NETS"),
    "torch": Section("torch_speed:torch", ("torch", "transformers"), "torch_nets:TORCH_NETS"),
}
PREFIX = "tf_"  # of file names of nets; nobody has to type it


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def chosen(words: Sequence[str]) -> dict[str, list[str]]:
    """Section → nets. Words are sections and nets; without sections, those that have the nets."""
    sections = [word for word in words if word in SECTIONS]
    wanted = {word for word in words if word not in SECTIONS}
    found: dict[str, list[str]] = {}
    for name in sections or SECTIONS:
        nets = SECTIONS[name].names()
        if wanted:
            nets = [net for net in nets if {net, net.removeprefix(PREFIX)} & wanted]
        if nets or not wanted:
            found[name] = nets
    nets = [net for each in found.values() for net in each]
    lost = wanted - {*nets, *(net.removeprefix(PREFIX) for net in nets)}
    if lost:
        raise LookupError(f"no section and no net of theirs is called {', '.join(sorted(lost))}")
    return found


def listing() -> str:
    lines = []
    for name, section in SECTIONS.items():
        missing = section.missing()
        told = f"needs {', '.join(missing)}" if missing else ", ".join(section.names())
        lines.append(f"{name:<12} {told}".rstrip())
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="section|net", help="all by default")
    parser.add_argument("--list", action="store_true", help="sections and their nets")
    given = parser.parse_args()
    if given.list:
        print(listing())
        return 0
    try:
        plan = chosen(given.words)
    except LookupError as error:
        parser.error(f"{error.args[0]}; there are:\n{listing()}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    for name in ("models", "peers", "runtimes", "tensorflow_nets", "tensorflow_peers"):
        logging.getLogger(name).setLevel(logging.INFO)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    CACHE.mkdir(parents=True, exist_ok=True)
    board = Board(CACHE.parent)
    failed = [name for name, nets in plan.items() if not _ran(name, nets, board)]
    board.say(f"\nwritten to {board.path}")
    if failed:
        board.say(f"[red]failed: {', '.join(failed)}[/red]")
    return 1 if failed else 0


def _ran(name: str, nets: Sequence[str], board: Board) -> bool:
    """A section that can't be run, or fails, leaves the others alone."""
    missing = SECTIONS[name].missing()
    if missing:
        board.say(f"{name} is left out: it needs pip install {' '.join(missing)}")
        return True
    try:
        SECTIONS[name].run(nets, board)
    except (LpotError, ImportError, RuntimeError, OSError, subprocess.CalledProcessError) as error:
        board.say(f"[red]{name} failed: {error}[/red]")
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
