"""`make bench`: speed, calibration, build, import and data, against peers and against goals.

    python benchmarks/run.py                              everything
    python benchmarks/run.py speed --model resnet50       one section, one net

Prints tables and writes build/bench.json. Ratios mean something only on a machine with nothing
else to do.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ours
import peers
from models import CACHE, NETS, Net, export
from rich.console import Console
from rich.table import Table
from tensorflow_speed import tensorflow
from torch_speed import torch

from lpot.core.benchmark import BenchmarkResult, Settings
from lpot.core.cpu import probe
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant

THREADS = 2
SPEED_GOALS = {"resnet50": 1.8, "mobilenet_v2": 1.4, "bert_base": 1.75}
BUILD_GOAL = 0.030
IMPORT_GOAL = 0.3
CPU_GOAL = 0.5  # our CPU time over the peer's
MEMORY_GOAL = 1.1  # peak memory of 200 samples over that of 20: flat
CALIBRATION_NET = "resnet50"
RECORD_GOAL = 0.5  # our speed over tf.data's, one thread
IMAGE_GOAL = 1.2  # our time over Pillow's decode and resize alone
WITHOUT_NETS = {"import", "data", "tensorflow", "torch"}

Section = Callable[[Sequence[Net], Console], dict[str, Any]]


def speed(nets: Sequence[Net], console: Console) -> dict[str, Any]:
    """FP32 = 1; each file in a plain session of its own process."""
    found = {}
    table = _table("Times faster than FP32", "net", "contestant", "median ms", "faster", "goal")
    for net in nets:
        result = benchmark(
            _contestants(net),
            feeds=next(net.feeds(1)),
            settings=Settings(threads=THREADS, seconds=6.0),
        )
        found[net.name] = result.to_json()
        _speed_rows(table, net, result)
        for note in result.notes:
            console.print(f"{net.title}: {note}")
    console.print(table)
    return found


def _contestants(net: Net) -> list[Contestant]:
    files = {"FP32": net.path, "ORT's quantizer": peers.quantized(net), "ours": ours.quantized(net)}
    if net.is_text:
        files["ours, dynamic"] = ours.quantized(net, "dynamic")
    return [
        Contestant("peers:session", "callable", label, arguments={"path": str(path)})
        for label, path in files.items()
    ]


def _speed_rows(table: Table, net: Net, result: BenchmarkResult) -> None:
    for model, row in zip(result.models, result.rows(), strict=True):
        goal = SPEED_GOALS[net.name] if model.label == "ours" else None
        reached = (
            model.comparison is not None and goal is not None and model.comparison.ratio >= goal
        )
        table.add_row(
            net.title,
            model.label,
            row["median ms"],
            row["times faster"] if model.error is None else row["verdict"],
            "" if goal is None else _goal(f">= {goal}", reached),
        )


def calibration(nets: Sequence[Net], console: Console) -> dict[str, Any]:
    """CPU against the peer's percentile calibrator with 50 samples; our memory from 20 to 200."""
    net = NETS[CALIBRATION_NET]
    if net not in nets:
        console.print(f"calibration is measured on {net.title} only")
        return {}
    export(net)
    peers.prepared(net)
    mine, theirs = _calibrate("ours", net, 50), _calibrate("peer", net, 50)
    few, many = _calibrate("ours", net, 20), _calibrate("ours", net, 200)
    cpu = mine["cpu_seconds"] / theirs["cpu_seconds"]
    growth = many["peak_memory"] / few["peak_memory"]
    table = _table(f"Calibration, {net.title}", "", "CPU s", "peak MB", "ranges", "goal")
    rows = (
        ("ORT Percentile, 50 samples", theirs, ""),
        ("ours, 50 samples", mine, _goal(f"CPU {cpu:.2f} <= {CPU_GOAL} of ORT's", cpu <= CPU_GOAL)),
        ("ours, 20 samples", few, ""),
        ("ours, 200 samples", many, _goal(f"memory {growth:.2f} of 20's", growth <= MEMORY_GOAL)),
    )
    for label, one, goal in rows:
        figures = (
            f"{one['cpu_seconds']:.1f}",
            f"{one['peak_memory'] / 1e6:.0f}",
            f"{one['ranges']}",
        )
        table.add_row(label, *figures, goal)
    console.print(table)
    return {"cpu_ratio": cpu, "memory_growth": growth} | {label: one for label, one, _ in rows}


def _calibrate(who: str, net: Net, samples: int) -> dict[str, float]:
    answer: dict[str, float] = _child("calibrate.py", who, net.name, str(samples))
    return answer


def _child(program: str, *words: str) -> dict[str, Any]:
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


def build(nets: Sequence[Net], console: Console) -> dict[str, Any]:
    """Milliseconds from a recipe to a model, without weights and session."""
    found = {}
    table = _table("Building a trial", "net", "first ms", "median ms", "worst ms", "goal")
    for net in nets:
        seconds = found[net.name] = ours.build_seconds(net)
        first, median, worst = (f"{value * 1e3:.1f}" for value in seconds.values())
        reached = seconds["median"] <= BUILD_GOAL
        table.add_row(net.title, first, median, worst, _goal(f"<= {BUILD_GOAL * 1e3:.0f}", reached))
    console.print(table)
    return found


def import_time(nets: Sequence[Net], console: Console) -> dict[str, Any]:
    """`import lpot` in a fresh interpreter, beyond what the interpreter itself takes."""
    bare, full = _start("pass"), _start("import lpot")
    table = _table("Import", "", "s", "goal")
    table.add_row("python", f"{bare:.3f}", "")
    reached = full - bare < IMPORT_GOAL
    table.add_row("import lpot", f"{full - bare:.3f}", _goal(f"< {IMPORT_GOAL}", reached))
    console.print(table)
    return {"python": bare, "lpot": full - bare}


def _start(code: str, times: int = 7) -> float:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=True
        )
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def data(nets: Sequence[Net], console: Console) -> dict[str, Any]:
    """CPU milliseconds an item; each goal is a ratio to the other way of doing the same."""
    found = _child("data.py")
    records, images = found["records"], found["images"]
    table = _table("Reading data", "", "CPU ms an item", "goal")
    for name, other in (("ours", "tf.data"), ("ours, parsed", "tf.data, parsed")):
        speed = records[other] / records[name]
        table.add_row(f"records: {other}", f"{records[other]:.3f}", "")
        goal = _goal(f"{speed:.2f} >= {RECORD_GOAL} of its speed", speed >= RECORD_GOAL)
        table.add_row(f"records: {name}", f"{records[name]:.3f}", goal)
    cost = images["ours"] / images["Pillow"]
    for name, value in images.items():
        goal = _goal(f"{cost:.2f} <= {IMAGE_GOAL} of Pillow", cost <= IMAGE_GOAL)
        table.add_row(f"images: {name}", f"{value:.3f}", goal if name == "ours" else "")
    console.print(table)
    return found


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column)
    return table


def _goal(text: str, reached: bool) -> str:
    return f"[green]{text}: yes" if reached else f"[red]{text}: no"


SECTIONS: dict[str, Section] = {
    "speed": speed,
    "calibration": calibration,
    "build": build,
    "import": import_time,
    "data": data,
    "tensorflow": tensorflow,
    "torch": torch,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; all by default"
    )
    parser.add_argument("--model", action="append", choices=list(NETS), help="all by default")
    given = parser.parse_args()
    unknown = [name for name in given.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]!r}: there are {', '.join(SECTIONS)}")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    for name in ("models", "peers"):
        logging.getLogger(name).setLevel(logging.INFO)
    nets = [NETS[name] for name in given.model or NETS]
    chosen = given.sections or list(SECTIONS)
    if set(chosen) - WITHOUT_NETS:
        for net in nets:
            export(net)
    target = CACHE.parent / "bench.json"
    results = json.loads(target.read_text()) if target.exists() else {}
    console = Console(width=None if sys.stdout.isatty() else 110)
    for name in chosen:
        # A run of some nets keeps what is known of the others.
        results[name] = {**results.get(name, {}), **SECTIONS[name](nets, console)}
        results["cpu"] = probe().to_json()
        target.write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"written to {target}")


if __name__ == "__main__":
    main()
