"""Where the figures go: each row is printed as it is known, with the CPU's kind, and kept as JSON.

A section is a function of the nets to measure and of this board. `race` does what all of them need.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from lpot.core.cpu import probe
from lpot.core.results.benchmark import BenchmarkResult, Measured, Settings
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant

THREADS = 2
OURS = "ours"
WIDTHS = (24, 30, 14, 20)  # of a row's first cells
FAILURE = 50  # characters of a failure's cause that a row has; the whole is in the file


class Board:
    """One run; its file holds what earlier runs on the same kind of CPU found of other nets."""

    def __init__(self, folder: Path) -> None:
        self.cpu = probe()
        self.path = folder / f"bench-{self.cpu.kind}.json"
        self.console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
        self.results: dict[str, Any] = {}
        if self.path.exists():
            self.results = json.loads(self.path.read_text())

    def say(self, text: str) -> None:
        self.console.print(text)

    def title(self, text: str) -> None:
        self.console.print(f"\n[bold]{text}[/bold] ({self.cpu.kind}: {self.cpu.name})")

    def row(self, *cells: str) -> None:
        """A line of a table, at once; the kind stands in each, so that it survives being quoted."""
        padded = [f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=False)]
        self.console.print("  ".join([f"{self.cpu.kind:<7}", *padded, *cells[len(WIDTHS) :]]))

    def goal(self, text: str, reached: bool) -> str:
        return f"[green]{text}: yes[/green]" if reached else f"[red]{text}: no[/red]"

    def keep(self, section: str, name: str, found: Any) -> None:
        """Into the file at once: a run that is stopped keeps what it has."""
        self.results["cpu"] = {**self.cpu.to_json(), "kind": self.cpu.kind}
        self.results.setdefault(section, {})[name] = found
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.results, indent=1) + "\n")

    def race(
        self,
        section: str,
        name: str,
        title: str,
        contestants: Sequence[Contestant],
        feeds: Mapping[str, Any],
        goal: float,
        seconds: float,
    ) -> BenchmarkResult:
        """Contestants in turns, the first = 1; the best of those called 'ours…' has the goal."""
        about = len(contestants) * seconds
        self.say(f"{title}: {len(contestants)} contestants, timed for {about:.0f} s ...")
        with self.console.status(title) as status:
            result = benchmark(
                contestants,
                feeds=feeds,
                settings=Settings(threads=THREADS, seconds=seconds),
                progress=lambda done, steps: status.update(f"{title}: turn {done} of {steps}"),
            )
        self.keep(section, name, result.to_json())
        ratios = {
            model.label: model.comparison.ratio
            for model in result.models
            if model.comparison is not None
        }
        for model, row in zip(result.models, result.rows(), strict=True):
            if model.timing is None:
                self.row(title, model.label, "", textwrap.shorten(row["verdict"], FAILURE))
                continue
            least = f"{quickest(result.baseline) / quickest(model):.2f} by the quickest rounds"
            self.row(title, model.label, f"{row['median ms']} ms", row["times faster"], least)
        mine = [ratio for label, ratio in ratios.items() if label.startswith(OURS)]
        if mine:
            told = f"{max(mine):.2f}, wanted {goal}"
            self.row(title, "goal", "", self.goal(told, max(mine) >= goal))
        for note in result.notes:
            self.say(f"{title}: {note}")
        return result


def quickest(model: Measured) -> float:
    """Seconds of the second quickest round: what other processes take is never negative.

    On a machine that is busy for a part of the time it tells more than the median of all rounds.
    """
    assert model.timing is not None
    return sorted(model.timing.round_medians)[1 if len(model.timing.rounds) > 1 else 0]


def child(program: str, *words: str) -> dict[str, Any]:
    """What a program of this folder prints last, in a process of its own."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(program)), *words],
        env={**os.environ, "PYTHONPATH": path, "LPOT_THREADS": str(THREADS)},
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
