"""Framework name → backend. The name is read here and nowhere else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from lpot.core.backend import Approach, Backend
from lpot.core.errors import BackendUnavailable, ConfigError, UnsupportedModel, did_you_mean

# name → (module, class)
BACKENDS: Mapping[str, tuple[str, str]] = {
    "onnx": ("lpot.backends.onnx", "OnnxBackend"),
}
# The original's names, and the approach that goes with them unless the user says otherwise.
ALIASES: Mapping[str, tuple[str, Approach | None]] = {
    "onnxrt_qlinearops": ("onnx", "static"),
    "onnxrt_integerops": ("onnx", "dynamic"),
}
# Packages a backend imports besides itself; the first one missing is named in the error.
REQUIRED: Mapping[str, tuple[str, ...]] = {"onnx": ("onnx", "onnxruntime")}

GROUP = "lpot.backends"
_registered: dict[str, Backend] = {}  # the per-process overlay of `register`


def frameworks() -> tuple[str, ...]:
    """Every name that `framework:` may say here."""
    plugged = tuple(point.name for point in entry_points(group=GROUP))
    return tuple(dict.fromkeys((*BACKENDS, *ALIASES, *_registered, *plugged)))


def register(name: str, backend: Backend) -> None:
    """Serve `framework: <name>` by this object, in this process."""
    _registered[name] = backend


def get_backend(name: str | Backend) -> Backend:
    """The backend of a framework's name, or the object itself when one is passed."""
    if not isinstance(name, str):
        return name
    if name in _registered:
        return _registered[name]
    known = ALIASES[name][0] if name in ALIASES else name
    if known in BACKENDS:
        module, cls = BACKENDS[known]
        for package in REQUIRED.get(known, ()):
            _require(name, package)
        backend: Backend = getattr(importlib.import_module(module), cls)()
        return backend
    for point in entry_points(group=GROUP):
        if point.name == name:
            made: Backend = point.load()()
            return made
    raise ConfigError(
        f"unknown framework {name!r}{did_you_mean(name, frameworks())} "
        f"(known here: {', '.join(frameworks())})",
        path="model.framework",
    )


def implied_approach(name: str | None) -> Approach | None:
    """What the original's name says of static and dynamic; None when it says nothing."""
    return ALIASES[name][1] if name in ALIASES else None


def _require(framework: str, package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise BackendUnavailable(framework, package, str(error)) from error


def detect(source: Any) -> str:
    """The framework of a model, from its type or file name; nothing is imported to find out."""
    if isinstance(source, str | Path):
        return _detect_path(Path(source))
    origin = {f"{cls.__module__}.{cls.__qualname__}" for cls in type(source).__mro__}
    if any(name.startswith("onnx.") and name.endswith("ModelProto") for name in origin):
        return "onnx"
    if any(name.startswith("onnx") for name in origin) and "onnx" in sys.modules:
        return "onnx"
    raise UnsupportedModel(
        f"can't tell the framework of a {type(source).__module__}.{type(source).__qualname__}: "
        f"say it with `framework` (one of {', '.join(frameworks())})"
    )


def _detect_path(path: Path) -> str:
    if path.suffix.lower() == ".onnx":
        return "onnx"
    raise UnsupportedModel(
        f"can't tell the framework of {str(path)!r} from its name: "
        f"say it with `framework` (one of {', '.join(frameworks())})"
    )
