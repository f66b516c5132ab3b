"""Scores that other processes can import, some of them with a fault that a recipe brings out."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from functools import cache
from pathlib import Path

import numpy as np
import onnx

from patience import wait_until
from search.tear import GUILTY, Torn


@cache
def net() -> Torn:
    return GUILTY["stubborn layer"](0)


def score(model: onnx.ModelProto) -> float:
    return net().score(model)


def is_all_low(model: onnx.ModelProto) -> bool:
    """Every convolution and the classifier read what was dequantized."""
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    made = {node.output[0]: node.op_type for node in model.graph.node}
    return all(made.get(node.input[1]) == "DequantizeLinear" for node in layers)


def crashing(model: onnx.ModelProto) -> float:
    if is_all_low(model):
        os.kill(os.getpid(), signal.SIGSEGV)
    return score(model)


def hanging(model: onnx.ModelProto) -> float:
    if is_all_low(model):
        time.sleep(600)
    return score(model)


def hanging_with_a_mark(model: onnx.ModelProto, mark: str) -> float:
    """The mark has the process that hangs, as soon as there is one."""
    if is_all_low(model):
        draft = Path(f"{mark}.draft")
        draft.write_text(str(os.getpid()))
        draft.rename(mark)
        time.sleep(600)
    return score(model)


def greedy(model: onnx.ModelProto) -> float:
    if is_all_low(model):
        held = np.ones((900, 1 << 20), np.uint8)
        time.sleep(600)
        return float(held[0, 0])
    return score(model)


def meeting(model: onnx.ModelProto, folder: str) -> float:
    """Goes on only when another process has come here too."""
    if not is_all_low(model) and os.environ.get("LPOT_THREADS"):
        (Path(folder) / str(os.getpid())).touch()
        wait_until(lambda: len(list(Path(folder).iterdir())) >= 2)
    return score(model)


def leaving_a_mark(model: onnx.ModelProto, mark: str) -> float:
    """Dies the first time in a worker, and works the second time."""
    if is_all_low(model) and not Path(mark).exists():
        Path(mark).touch()
        os._exit(7)
    return score(model)


def slow(model: onnx.ModelProto) -> float:
    """Takes its time wherever it is not all in INT8."""
    if not is_all_low(model) and os.environ.get("LPOT_THREADS"):
        time.sleep(30)
    return score(model)


def with_processes(model: onnx.ModelProto) -> float:
    """As a loader with workers does: processes that are forked, work and are ended."""
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(abs, [-1, 2, -3]) == [1, 2, 3]
    return score(model)


def dying_with_a_child(model: onnx.ModelProto, mark: str) -> float:
    """The process dies; what it forked lives on, and holds its pipes open."""
    if is_low(model) and not Path(mark).exists():
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        Path(mark).write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    return score(model)


def is_low(model: onnx.ModelProto) -> bool:
    return any(node.op_type == "QuantizeLinear" for node in model.graph.node)


def leaving(model: onnx.ModelProto) -> float:
    if is_low(model):
        raise SystemExit(3)
    return score(model)


def sleeping(model: onnx.ModelProto, mark: str) -> float:
    if is_low(model):
        Path(mark).write_text(str(os.getpid()))
        time.sleep(600)
    return score(model)
