"""The section `torch` of `make bench`: FP32 eager = 1, next to torch's own legacy modes.

Set LPOT_TORCHAO to the folder that holds torchao (`pip install --no-deps --target`) to have its
PT2E quantization with torch.compile take part, and LPOT_TORCH_NETS to name some nets only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lpot.core.benchmark import BenchmarkResult, Settings
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant

THREADS = 2
SECONDS = 4.0
OURS = "ours"
BUILD_GOAL = 0.010
MEMORY_GOAL = 1.1  # peak memory of 100 samples over that of 10: flat
TRIALS = ("bert_b1", "resnet50")


def torch(nets: Sequence[Any], console: Console) -> dict[str, Any]:
    """All nets; those of the other sections are of no concern here."""
    from torch_nets import TORCH_NETS

    words = os.environ.get("LPOT_TORCH_NETS")
    chosen = words.split(",") if words else list(TORCH_NETS)
    found: dict[str, Any] = {}
    table = _table("PyTorch: times faster than FP32", "net", "contestant", "median ms", "faster")
    for name in chosen:
        net = TORCH_NETS[name]
        result = benchmark(
            _contestants(net),
            feeds=next(net.feeds(1, seed=7)),
            settings=Settings(threads=THREADS, seconds=SECONDS),
        )
        found[name] = result.to_json()
        _rows(table, net, result)
        for note in result.notes:
            console.print(f"{net.title}: {note}")
    console.print(table)
    found |= _trials([name for name in TRIALS if name in chosen], console)
    return found


def _contestants(net: Any) -> list[Contestant]:
    made = [("FP32", "fp32", {})]
    for approach in net.approaches:
        label = OURS if len(net.approaches) == 1 else f"{OURS}, {approach}"
        made.append((label, "ours", {"approach": approach}))
    if net.is_text:
        made += [
            (f"torch dynamic, {engine}", "legacy_dynamic", {"engine": engine})
            for engine in ("fbgemm", "onednn")
        ]
    else:
        made += [
            (f"torch FX, {engine}", "legacy_fx", {"engine": engine})
            for engine in ("fbgemm", "onednn")
        ]
    if os.environ.get("LPOT_TORCHAO"):
        made.append(("torchao PT2E, compiled", "torchao_compiled", {}))
    return [
        Contestant(
            f"torch_peers:{maker}", "callable", label, arguments={"name": net.name, **options}
        )
        for label, maker, options in made
    ]


def _rows(table: Table, net: Any, result: BenchmarkResult) -> None:
    best = max(
        (
            model.comparison.ratio
            for model in result.models
            if model.comparison is not None and model.label.startswith(OURS)
        ),
        default=0.0,
    )
    for model, row in zip(result.models, result.rows(), strict=True):
        told = row["times faster"] if model.error is None else row["verdict"]
        table.add_row(net.title, model.label, row["median ms"], told)
    mark = "green" if best >= net.goal else "red"
    table.add_row("", "[bold]goal", "", f"[{mark}]{best:.2f}, wanted {net.goal}", end_section=True)


def _trials(names: Sequence[str], console: Console) -> dict[str, Any]:
    found: dict[str, Any] = {}
    table = _table("PyTorch: trials and calibration", "net", "", "found", "goal")
    for name in names:
        seconds = _child("build", name)
        few, many = (_child("memory", name, count)["peak_memory"] for count in ("10", "100"))
        growth = many / few
        found[f"{name} trials"] = {"build": seconds, "memory_growth": growth}
        built = f"{seconds['median'] * 1e3:.1f} ms (first {seconds['first'] * 1e3:.0f})"
        table.add_row(name, "build", built, f"< {BUILD_GOAL * 1e3:.0f} ms")
        flat = f"{growth:.2f} times that of 10 samples"
        table.add_row(name, "memory of 100 samples", flat, f"<= {MEMORY_GOAL}")
    if names:
        console.print(table)
    return found


def _child(*words: str) -> dict[str, float]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("torch_trials.py")), *words],
        env={**os.environ, "PYTHONPATH": path, "LPOT_THREADS": str(THREADS)},
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    return table
