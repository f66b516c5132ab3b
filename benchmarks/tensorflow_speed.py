"""The section `tensorflow` of `make bench`: FP32 with oneDNN on = 1, each in its own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow_peers as peers
from rich.console import Console
from rich.table import Table
from tensorflow_nets import NETS, TfNet, frozen

from lpot.core.benchmark import BenchmarkResult, Settings
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant

THREADS = 2
BASE, OURS, INC = "TF FP32", "ours", "neural-compressor-tf"
SECONDS = {1: 4.0, 8: 8.0}


def tensorflow(nets: Sequence[Any], console: Console) -> dict[str, Any]:
    """All nets and batch sizes; the nets of the other sections are of no concern here."""
    found = {}
    table = Table(title="TensorFlow: times faster than FP32", title_justify="left")
    for column in ("net", "batch", "contestant", "median ms", "faster", "goal"):
        table.add_column(column)
    for net in NETS.values():
        contestants = _contestants(net)
        for size in net.goals:
            result = benchmark(
                contestants,
                feeds={"x": next(net.batches(1, size))},
                settings=Settings(threads=THREADS, seconds=SECONDS[size]),
            )
            found[f"{net.name} b{size}"] = result.to_json()
            _rows(table, net, size, result)
            for note in result.notes:
                console.print(f"{net.title} b{size}: {note}")
    console.print(table)
    return found


def _contestants(net: TfNet) -> list[Contestant]:
    made = peers.made_by_us(net)
    ends = {"first": made["first"], "last": made["last"], "dtype": net.dtype}
    graphs = {BASE: frozen(net), OURS: made["ours"]}
    inc = peers.made_by_peer(net, made["first"], made["last"])
    if inc is not None:
        graphs[INC] = inc
    return [
        *(
            Contestant(
                "tensorflow_peers:session", "callable", label, arguments={"path": str(path), **ends}
            )
            for label, path in graphs.items()
        ),
        Contestant(
            "tensorflow_peers:onnx_session",
            "callable",
            "ours as ONNX in ONNX Runtime",
            arguments={"path": str(made["onnx"]), "dtype": net.dtype},
        ),
    ]


def _rows(table: Table, net: TfNet, size: int, result: BenchmarkResult) -> None:
    ratios = {
        model.label: model.comparison.ratio
        for model in result.models
        if model.comparison is not None
    }
    for model, row in zip(result.models, result.rows(), strict=True):
        wanted = net.goals[size] if model.label == OURS else None
        reached = ratios.get(OURS, 0.0) >= max(net.goals[size], ratios.get(INC, 0.0))
        goal = "" if wanted is None else f"[{'green' if reached else 'red'}]>= {wanted}"
        figures = row["times faster"] if model.error is None else row["verdict"]
        table.add_row(net.title, str(size), model.label, row["median ms"], figures, goal)
