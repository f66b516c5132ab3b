"""OpenVINO as a place to run ONNX files: not a backend, it is only measured against the others."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import InputSpec
from lpot.core.errors import BackendUnavailable, UnsupportedModel


class Runner:
    """An ONNX file compiled for this CPU; called with a feed by input name."""

    framework = "openvino"

    def __init__(self, path: str) -> None:
        package = _openvino()
        self.versions = {"openvino": str(package.__version__).partition("-")[0]}
        self.size = Path(path).stat().st_size
        options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        threads = int(os.environ.get("LPOT_THREADS", "0"))
        if threads:
            options["INFERENCE_NUM_THREADS"] = threads
        try:
            self._compiled = package.Core().compile_model(path, "CPU", options)
        except RuntimeError as error:  # the base of all that its C++ side raises
            raise UnsupportedModel(f"OpenVINO rejects the model: {_last_line(error)}") from error

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return tuple(
            InputSpec(port.any_name, np.dtype(port.element_type.to_dtype()).name, _shape(port))
            for port in self._compiled.inputs
        )

    def __call__(self, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        found = self._compiled(dict(feed))
        return [found[port] for port in self._compiled.outputs]


def open_onnx(path: str) -> tuple[Runner, tuple[InputSpec, ...]]:
    """For a benchmark's child: what runs, and its inputs."""
    runner = Runner(path)
    return runner, runner.inputs


def _openvino() -> Any:
    try:
        return importlib.import_module("openvino")
    except ImportError as error:
        raise BackendUnavailable("openvino", "openvino", str(error)) from error


def _shape(port: Any) -> tuple[int | None, ...] | None:
    partial = port.partial_shape
    if partial.rank.is_dynamic:
        return None
    return tuple(None if size.is_dynamic else int(size.get_length()) for size in partial)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
