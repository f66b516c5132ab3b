"""The section `torch` of `make bench`: FP32 eager = 1, next to torch's own legacy modes.

Set LPOT_TORCHAO to the folder that holds torchao (`pip install --no-deps --target`) to have its
PT2E quantization with torch.compile take part.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from board import Board, child

from lpot.jobs.benchmark.contestant import Contestant

SECONDS = 4.0
OURS = "ours"
BUILD_GOAL = 0.010
MEMORY_GOAL = 1.1  # peak memory of 100 samples over that of 10: flat
TRIALS = ("bert_b1", "resnet50")
# Where a CPU without VNNI has a goal of its own.
GOALS_AVX2 = {"bert_b1": 1.95, "gpt": 3.8}


def torch(names: Sequence[str], board: Board) -> None:
    """Each net, then what a trial and a calibration cost."""
    from torch_nets import TORCH_NETS

    board.title("PyTorch: times faster than FP32")
    for name in names:
        net = TORCH_NETS[name]
        feeds = next(net.feeds(1, seed=7))
        goal = GOALS_AVX2.get(name, net.goal) if board.cpu.kind == "avx2" else net.goal
        board.race("torch", name, net.title, _contestants(net), feeds, goal, SECONDS)
    for name in names:
        if name in TRIALS:
            _trial(name, board)


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


def _trial(name: str, board: Board) -> None:
    seconds = child("torch_trials.py", "build", name)
    told = board.goal(f"< {BUILD_GOAL * 1e3:.0f} ms", seconds["median"] < BUILD_GOAL)
    first = f"build of a trial (first {seconds['first'] * 1e3:.0f})"
    board.row(name, first, f"{seconds['median'] * 1e3:.1f} ms", told)
    few, many = (
        child("torch_trials.py", "memory", name, count)["peak_memory"] for count in ("10", "100")
    )
    growth = many / few
    told = board.goal(f"<= {MEMORY_GOAL} of 10's", growth <= MEMORY_GOAL)
    board.row(name, "memory of 100 samples", f"{growth:.2f}", told)
    board.keep("torch", f"{name} trials", {"build": seconds, "memory_growth": growth})
