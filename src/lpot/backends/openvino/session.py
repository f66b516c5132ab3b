"""OpenVINO behind the interface of ONNX Runtime's sessions: names in, arrays out."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from lpot.core.batch import InputSpec
from lpot.core.cpu import usable_cores
from lpot.core.errors import BackendUnavailable, DataError, UnsupportedModel

Floats = Literal["f32", "bf16", "f16"]
# What ONNX Runtime calls the types of tensors.
TYPES: Mapping[str, str] = {"float32": "float", "float64": "double", "bool": "bool"}


@dataclass(frozen=True)
class Port:
    """An input or output, as ONNX Runtime describes it."""

    name: str
    type: str
    shape: list[int | str | None]


class Session:
    """A compiled model. `floats` is the precision of what is not INT8: by itself OpenVINO takes
    bf16 wherever the CPU has it, which nobody asked for."""

    def __init__(self, source: bytes | str, floats: Floats = "f32", times: bool = False) -> None:
        options: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": floats,
            "INFERENCE_NUM_THREADS": int(os.environ.get("LPOT_THREADS", "0")) or _threads(),
            "PERF_COUNT": times,
        }
        try:
            self.compiled = _core().compile_model(_core().read_model(source), "CPU", options)
        except RuntimeError as error:  # the base of all that its C++ side raises
            raise UnsupportedModel(f"OpenVINO rejects the model: {_last_line(error)}") from error
        self.floats = floats
        self.request = self.compiled.create_infer_request()
        self._inputs = [_port(port) for port in self.compiled.inputs]
        self._outputs = [_port(port) for port in self.compiled.outputs]

    def get_inputs(self) -> list[Port]:
        return list(self._inputs)

    def get_outputs(self) -> list[Port]:
        return list(self._outputs)

    def get_providers(self) -> list[str]:
        return ["OpenVINO CPU"]

    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], options: Any = None
    ) -> list[np.ndarray]:
        """As `onnxruntime.InferenceSession.run`."""
        arrays = {name: np.ascontiguousarray(value) for name, value in feeds.items()}
        try:
            self.request.infer(arrays, share_inputs=True)
        except RuntimeError as error:
            raise DataError(f"OpenVINO failed: {_last_line(error)}") from error
        wanted = range(len(self._outputs)) if output_names is None else self._places(output_names)
        return [np.array(self.request.get_output_tensor(at).data) for at in wanted]

    def _places(self, names: Sequence[str]) -> Iterator[int]:
        known = {name: at for at, port in enumerate(self.compiled.outputs) for name in port.names}
        for name in names:
            if name not in known:
                given = ", ".join(port.name for port in self._outputs)
                raise DataError(f"no output is called {name!r}; the model has {given}")
            yield known[name]


class Runner:
    """A file compiled for this CPU, for a benchmark's child; called with a feed by input name."""

    framework = "openvino"

    def __init__(self, path: str, floats: Floats = "f32") -> None:
        self.versions = versions()
        self.size = Path(path).stat().st_size
        self._session = Session(path, floats)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return tuple(
            InputSpec(port.any_name, np.dtype(port.element_type.to_dtype()).name, _shape(port))
            for port in self._session.compiled.inputs
        )

    def __call__(self, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return self._session.run(None, feed)


def open_onnx(path: str, floats: Floats = "f32") -> tuple[Runner, tuple[InputSpec, ...]]:
    """For a benchmark's child: what runs, and its inputs."""
    runner = Runner(path, floats)
    return runner, runner.inputs


def write_ir(source: Path, target: Path) -> None:
    """Both files take effect together, or neither does; the weights keep their precision."""
    with TemporaryDirectory(prefix=".lpot-", dir=target.parent) as folder:
        draft = Path(folder) / target.name
        openvino().save_model(_core().read_model(str(source)), draft, compress_to_fp16=False)
        Session(str(draft))
        draft.with_suffix(".bin").replace(target.with_suffix(".bin"))
        draft.replace(target)


def openvino() -> Any:
    try:
        return importlib.import_module("openvino")
    except ImportError as error:
        raise BackendUnavailable("openvino", "openvino", str(error)) from error


def versions() -> dict[str, str]:
    return {"openvino": str(openvino().__version__).partition("-")[0]}


@lru_cache
def has_bf16() -> bool:
    """Does it compute in bf16 on this CPU, and not merely emulate it?"""
    return "BF16" in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


@lru_cache
def _core() -> Any:
    return openvino().Core()


def _threads() -> int:
    return len(usable_cores())


def _port(port: Any) -> Port:
    shape: list[int | str | None] = [] if (known := _shape(port)) is None else list(known)
    dtype = np.dtype(port.element_type.to_dtype()).name
    return Port(port.any_name, f"tensor({TYPES.get(dtype, dtype)})", shape)


def _shape(port: Any) -> tuple[int | None, ...] | None:
    partial = port.partial_shape
    if partial.rank.is_dynamic:
        return None
    return tuple(None if size.is_dynamic else int(size.get_length()) for size in partial)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
