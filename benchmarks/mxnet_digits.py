"""`make bench-mxnet`: a Gluon CNN on digits and a face net, FP32 against INT8, interleaved.

Runs in the environment of MXNet. Each model has its own process, the idle one is stopped.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon import nn
from rich.console import Console
from rich.table import Table

import lpot
from lpot.core.results.benchmark import BenchmarkResult, Settings
from lpot.demo import DemoData, demo_data
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant

GOAL = 1.8
BATCH = 50
WIDTH, EPOCHS = 64, 6
FACES = (
    Path(os.environ.get("LPOT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    / "mobilefacenet_mxnet"
)


def block(width: int) -> nn.HybridSequential:
    part = nn.HybridSequential()
    part.add(nn.Conv2D(width, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    return part


def trained(data: DemoData) -> nn.HybridSequential:
    """A plain CNN; minutes are not needed for 98 %."""
    mx.random.seed(3)
    np.random.seed(3)  # Gluon's shuffling
    net = nn.HybridSequential(prefix="digits_")
    with net.name_scope():
        net.add(block(WIDTH), block(WIDTH), block(2 * WIDTH), nn.MaxPool2D(2))
        net.add(block(2 * WIDTH), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3})
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    pictures = mx.gluon.data.ArrayDataset(data.calib_images, data.calib_labels.astype(np.float32))
    for _ in range(EPOCHS):
        for batch, labels in mx.gluon.data.DataLoader(pictures, batch_size=BATCH, shuffle=True):
            with mx.autograd.record():
                value = loss(net(batch), labels)
            value.backward()
            trainer.step(len(batch))
    return net


def digits(folder: Path) -> tuple[str, BenchmarkResult]:
    data = demo_data()

    def accuracy(net: Any) -> float:
        return float((net(mx.nd.array(data.images)).asnumpy().argmax(1) == data.labels).mean())

    net = trained(data)
    images = data.calib_images
    calibration = [images[at : at + BATCH] for at in range(0, 4 * BATCH, BATCH)]
    result = lpot.tune(net, calibration, accuracy, goal=0.01, workspace=folder, measure_speed=False)
    net.export(str(folder / "fp32"))
    found = compare(folder / "fp32-symbol.json", result.path, data.images[:BATCH])
    return f"accuracy {result.baseline.accuracy:.4f} to {result.accuracy:.4f}", found


def faces(folder: Path) -> tuple[str, BenchmarkResult]:
    images = np.random.default_rng(0).integers(0, 255, (16, 3, 112, 112)).astype(np.float32)

    def embed(native: Any) -> np.ndarray:
        symbol, args, auxs = native
        feeds = {**args, "data": mx.nd.array(images)}
        bound = symbol.bind(mx.cpu(), feeds, aux_states=auxs, grad_req="null")
        vectors = bound.forward(is_train=False)[0].asnumpy()
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    given = FACES / "model-symbol.json"
    loaded = mx.model.load_checkpoint(str(FACES / "model"), 0)
    wanted = embed(loaded)
    result = lpot.tune(
        str(given),
        [images[at : at + 8] for at in (0, 8)],
        lambda native: float((embed(native) * wanted).sum(1).mean()),
        goal=0.01,
        framework="mxnet",
        workspace=folder,
        measure_speed=False,
    )
    low = sum(precision == "int8" for precision in result.model.precisions.values())
    note = (
        f"cosine {result.accuracy:.4f} on noise, {low} of {len(result.model.precisions)} ops INT8"
    )
    return note, compare(given, result.path, images[:1])


def compare(given: Path, built: Path | None, feeds: np.ndarray) -> BenchmarkResult:
    files = {"FP32": given, "INT8": built}
    return benchmark(
        [Contestant(str(path), label=label, framework="mxnet") for label, path in files.items()],
        feeds={"data": feeds},
        settings=Settings(threads=2, seconds=6.0),
    )


def main() -> int:
    console = Console()
    table = Table("net", "median ms FP32", "median ms INT8", "times faster", "goal", "remark")
    jobs: dict[str, tuple[Callable[[Path], tuple[str, BenchmarkResult]], float | None]]
    jobs = {"CNN on digits": (digits, GOAL)}
    if FACES.is_dir():
        jobs["MobileFaceNet"] = (faces, None)
    for name, (job, goal) in jobs.items():
        with tempfile.TemporaryDirectory() as folder:
            remark, result = job(Path(folder))
        rows = result.rows()
        wanted = "" if goal is None else f">= {goal}"
        times = rows[1]["times faster"]
        table.add_row(name, *(row["median ms"] for row in rows), times, wanted, remark)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
