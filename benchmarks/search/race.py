"""The race that all contestants run: ResNet-20 on CIFAR-10, and an evaluation that counts.

Imported in the contestants' own environments: nothing but numpy, onnx and onnxruntime is used.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
RELATIVE = 0.01
CALIBRATION = 100
BATCH = 20
MEAN = 255 * np.array([0.485, 0.456, 0.406], np.float32)
SPREAD = 255 * np.array([0.229, 0.224, 0.225], np.float32)


def model_path(name: str) -> Path:
    return DATA / "race" / f"{name}.onnx"


class Race:
    """Images, labels, and what the evaluations have cost so far."""

    def __init__(self) -> None:
        with np.load(DATA / "cifar10_keras_cnn" / "cifar10_test2000.npz") as stored:
            scaled = (stored["x"].astype(np.float32) - MEAN) / SPREAD
            self.images = np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
            self.labels = stored["y"].ravel()
        self.evaluations = 0
        self.samples = 0

    def calibration(self) -> list[np.ndarray]:
        return [self.images[at : at + BATCH] for at in range(0, CALIBRATION, BATCH)]

    def score(self, model: Any) -> float:
        """Top-1 of a ModelProto, a file or a session; counted."""
        return float(self.right(model, np.arange(len(self.images))).mean())

    def right(self, model: Any, chosen: np.ndarray) -> np.ndarray:
        """Which of the chosen images are told right."""
        self.evaluations += 1
        self.samples += len(chosen)
        session = model if hasattr(model, "run") else make_session(model)
        name = session.get_inputs()[0].name
        found = []
        for at in range(0, len(chosen), 100):
            part = chosen[at : at + 100]
            (logits,) = session.run(None, {name: self.images[part]})[:1]
            found.append(logits.argmax(1) == self.labels[part])
        return np.concatenate(found)


def make_session(model: Any) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    source = model.SerializeToString() if hasattr(model, "SerializeToString") else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def fp32_cpu(name: str) -> float:
    """CPU seconds of one FP32 evaluation, the unit of cost."""
    race, path = Race(), model_path(name)
    race.score(path)
    start = time.process_time()
    race.score(path)
    return time.process_time() - start


def float_compute(path: Path) -> int:
    """Convolutions and matrix products that are left in FP32, whatever the file's dialect."""
    import onnx

    graph = onnx.load(str(path)).graph
    makers = {output: node.op_type for node in graph.node for output in node.output}
    return sum(
        node.op_type in ("Conv", "FusedConv", "Gemm", "MatMul")
        and makers.get(node.input[0]) != "DequantizeLinear"
        for node in graph.node
    )
