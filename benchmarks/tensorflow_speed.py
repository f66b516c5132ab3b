"""The section `tensorflow` of `make bench`: FP32 with oneDNN on = 1, each in its own process."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow_peers as peers
from board import Board
from tensorflow_nets import NETS, TfNet, frozen

from lpot.jobs.benchmark.contestant import Contestant

BASE, OURS, INC = "TF FP32", "ours", "neural-compressor-tf"
SECONDS = {1: 4.0, 8: 8.0}


def tensorflow(names: Sequence[str], board: Board) -> None:
    """Each net at each of its batch sizes."""
    board.title("TensorFlow: times faster than FP32")
    for name in names:
        net = NETS[name]
        contestants = _contestants(net, board)
        for size, goal in net.goals.items():
            board.race(
                "tensorflow",
                f"{name} b{size}",
                f"{net.title} b{size}",
                contestants,
                {"x": next(net.batches(1, size))},
                goal,
                SECONDS[size],
            )


def _contestants(net: TfNet, board: Board) -> list[Contestant]:
    made = peers.made_by_us(net)
    ends = {"first": made["first"], "last": made["last"], "dtype": net.dtype}
    graphs = {BASE: frozen(net), OURS: made["ours"]}
    inc = peers.made_by_peer(net, made["first"], made["last"])
    if inc is not None:
        graphs[INC] = inc
    found = [
        Contestant(
            "tensorflow_peers:session", "callable", label, arguments={"path": str(path), **ends}
        )
        for label, path in graphs.items()
    ]
    if made["onnx"] is None:
        board.say(f"{net.title}: no row of its ONNX export: pip install tf2onnx onnxruntime")
        return found
    return [
        *found,
        Contestant(
            "tensorflow_peers:onnx_session",
            "callable",
            "exported to ONNX Runtime",
            arguments={"path": str(made["onnx"]), "dtype": net.dtype},
        ),
    ]
