"""The sections of ONNX: speed against FP32 and the peer, calibration, and the build of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ours
import peers
from board import Board, child
from models import NETS, Net, export

from lpot.jobs.benchmark.contestant import Contestant

# Times faster than FP32, by the CPU's kind; those of VNNI hold for what is newer, too.
GOALS = {
    "resnet50": {"avx2": 1.95, "vnni": 1.8},
    "mobilenet_v2": {"avx2": 1.55, "vnni": 1.4},
    "bert_base": {"avx2": 1.75, "vnni": 1.75},
}
SECONDS = 6.0
BUILD_GOAL = 0.030
CPU_GOAL = 0.5  # our CPU time over the peer's
MEMORY_GOAL = 1.1  # peak memory of 200 samples over that of 20: flat
CALIBRATION_NET = "resnet50"


def speed(names: Sequence[str], board: Board) -> None:
    """FP32 = 1; each file in a plain session of its own process."""
    board.title("ONNX Runtime: times faster than FP32")
    for name in names:
        net = NETS[name]
        export(net)
        goals = GOALS[name]
        board.race(
            "speed",
            name,
            net.title,
            _contestants(net),
            next(net.feeds(1)),
            goals.get(board.cpu.kind, goals["vnni"]),
            SECONDS,
        )


def _contestants(net: Net) -> list[Contestant]:
    files = {"FP32": net.path, "ORT's quantizer": peers.quantized(net), "ours": ours.quantized(net)}
    if net.is_text:
        files["ours, dynamic"] = ours.quantized(net, "dynamic")
    return [
        Contestant("peers:session", "callable", label, arguments={"path": str(path)})
        for label, path in files.items()
    ]


def calibration(names: Sequence[str], board: Board) -> None:
    """CPU against the peer's percentile calibrator with 50 samples; our memory from 20 to 200."""
    if CALIBRATION_NET not in names:
        return
    net = NETS[CALIBRATION_NET]
    board.title(f"Calibration of {net.title}")
    export(net)
    peers.prepared(net)
    found: dict[str, Any] = {}
    for label, who, samples in (
        ("ORT Percentile, 50 samples", "peer", 50),
        ("ours, 50 samples", "ours", 50),
        ("ours, 20 samples", "ours", 20),
        ("ours, 200 samples", "ours", 200),
    ):
        one = found[label] = child("calibrate.py", who, net.name, str(samples))
        memory = f"{one['peak_memory'] / 1e6:.0f} MB"
        board.row(net.title, label, f"{one['cpu_seconds']:.1f} CPU s", memory)
    theirs, mine, few, many = found.values()
    cpu = mine["cpu_seconds"] / theirs["cpu_seconds"]
    growth = many["peak_memory"] / few["peak_memory"]
    told = board.goal(f"{cpu:.2f} <= {CPU_GOAL} of ORT's CPU time", cpu <= CPU_GOAL)
    board.row(net.title, "goal", "", told)
    told = board.goal(f"{growth:.2f} <= {MEMORY_GOAL} of 20's memory", growth <= MEMORY_GOAL)
    board.row(net.title, "goal", "", told)
    board.keep("calibration", net.name, {"cpu_ratio": cpu, "memory_growth": growth, **found})


def build(names: Sequence[str], board: Board) -> None:
    """Milliseconds from a recipe to a model, without weights and session."""
    board.title("Building a trial")
    for name in names:
        net = NETS[name]
        export(net)
        seconds = ours.build_seconds(net)
        first, median, worst = (f"{value * 1e3:.1f}" for value in seconds.values())
        told = board.goal(f"<= {BUILD_GOAL * 1e3:.0f} ms", seconds["median"] <= BUILD_GOAL)
        board.row(net.title, f"first {first}, worst {worst} ms", f"{median} ms", told)
        board.keep("build", name, seconds)
