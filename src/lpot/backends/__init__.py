"""Framework name → backend. The name is read here and nowhere else."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from lpot.core import framework
from lpot.core.backend import Approach, Backend
from lpot.core.errors import BackendUnavailable, ConfigError, UnsupportedModel, a_kind, did_you_mean
from lpot.core.framework import ALIASES, GROUP, RUNTIME_GROUP
from lpot.core.model import Model


@dataclass(frozen=True)
class Entry:
    """Where a backend lives and what it needs: top-level import → package to install."""

    module: str
    cls: str
    needs: Mapping[str, str]
    advice: str = ""  # what else to know before installing it


BACKENDS: Mapping[str, Entry] = {
    "onnx": Entry(
        "lpot.backends.onnx", "OnnxBackend", {"onnx": "onnx", "onnxruntime": "onnxruntime"}
    ),
    "pytorch": Entry("lpot.backends.torch", "TorchBackend", {"torch": "torch"}),
    "tensorflow": Entry(
        "lpot.backends.tensorflow", "TensorflowBackend", {"tensorflow": "tensorflow-cpu"}
    ),
    "mxnet": Entry(
        "lpot.backends.mxnet",
        "MxnetBackend",
        {"mxnet": 'mxnet==1.9.1 "numpy<1.24"'},
        advice="install it in a separate environment, and run your script there or name its "
        "interpreter in LPOT_MXNET_PYTHON for the `lpot` command",
    ),
}
# What runs ONNX files, by name: backends over them.
RUNTIMES: Mapping[str, Entry] = {
    "onnxruntime": BACKENDS["onnx"],
    "openvino": Entry(
        "lpot.backends.openvino",
        "OpenvinoBackend",
        {"openvino": "openvino", "onnx": "onnx", "onnxruntime": "onnxruntime"},
    ),
}
# Classes by which a model object tells its framework, and endings by which a file does.
CLASSES: Mapping[str, str] = {
    "onnx.": "onnx",
    "onnx_ml_pb2.": "onnx",
    "torch.nn.": "pytorch",
    "torch.export.": "pytorch",
    "tensorflow.": "tensorflow",
    "keras.": "tensorflow",
    "tf_keras.": "tensorflow",
    "mxnet.": "mxnet",
}
SUFFIXES: Mapping[str, str] = {
    ".onnx": "onnx",
    # The ONNX backend tells what to give instead of these.
    ".ort": "onnx",
    ".xml": "onnx",
    ".engine": "onnx",
    ".trt": "onnx",
    ".pb": "tensorflow",
    ".pbtxt": "tensorflow",
    ".meta": "tensorflow",
    ".h5": "tensorflow",
    ".hdf5": "tensorflow",
    ".tflite": "tensorflow",
    ".keras": "tensorflow",
    ".params": "mxnet",
    ".pt": "pytorch",
    ".pt2": "pytorch",
    ".pth": "pytorch",
}
TFJS = "model.json"  # TensorFlow's backend tells what to give instead
SYMBOL = "-symbol.json"  # MXNet names a model by what stands before this
# Files by which a folder tells its framework.
INSIDE: Mapping[str, str] = {
    "saved_model.pb": "tensorflow",
    "*.meta": "tensorflow",
    "frozen_inference_graph.pb": "tensorflow",
    "lpot.json": "pytorch",
    "best_configure.yaml": "pytorch",
    "model.safetensors": "pytorch",
    "*.onnx": "onnx",
    "*-symbol.json": "mxnet",
    TFJS: "tensorflow",
}


def frameworks() -> tuple[str, ...]:
    """Every name that `framework:` may say here."""
    return framework.known()


def register(name: str, backend: Backend[Any]) -> None:
    """Serve `framework: <name>` by this object, in this process."""
    framework.registered[name] = adopted(backend)


def get_backend(name: str | Backend[Any]) -> Backend:
    """The backend of a framework's name, or the object itself when one is passed."""
    if not isinstance(name, str):
        return adopted(name)
    if name in framework.registered:
        return framework.registered[name]
    known = ALIASES[name][0] if name in ALIASES else name
    if name in RUNTIMES and name not in framework.known():  # as cards of their models name them
        return get_runtime(name)
    if known in BACKENDS:
        return _make(name, BACKENDS[known])
    for point in entry_points(group=GROUP):
        if point.name == name:
            return adopted(point.load()())
    raise ConfigError(
        f"unknown framework {name!r}{did_you_mean(name, frameworks())} "
        f"(known here: {', '.join(frameworks())})",
        path="model.framework",
    )


def runtimes() -> tuple[str, ...]:
    """Every name that `runtime:` may say here, besides native and auto."""
    return framework.known_runtimes()


def installed_runtimes() -> tuple[str, ...]:
    """Those that can be used; nothing is imported to find out."""
    return tuple(name for name in runtimes() if not missing_for_runtime(name))


def missing_for_runtime(name: str) -> tuple[str, ...]:
    """What to install before `runtime: <name>` works."""
    return _missing(RUNTIMES[name]) if name in RUNTIMES else ()


def get_runtime(name: str) -> Backend:
    """The backend that tunes ONNX files for a runtime: a new one for each use."""
    if name in RUNTIMES:
        return _make(name, RUNTIMES[name])
    for point in entry_points(group=RUNTIME_GROUP):
        if point.name == name:
            return adopted(point.load()())
    near = did_you_mean(name, runtimes())
    raise ConfigError(f"unknown runtime {name!r}{near}", path="model.runtime")


def adopted(given: Any) -> Backend:
    """The object, if it can serve: one written before the base class gets the defaults it lacks."""
    if isinstance(given, Backend):
        return given
    required = Backend.__abstractmethods__ | {"save", "restore"}
    wanted = [verb for verb in vars(Backend) if verb in required]
    lacking = [verb for verb in wanted if not callable(getattr(given, verb, None))]
    told = f"it lacks {', '.join(lacking)}" if lacking else "it is a class: create an object of it"
    if not lacking and not isinstance(given, type):
        try:
            return _completed(given)
        except AttributeError:
            told = "it takes no further attributes"
    what = given.__name__ if isinstance(given, type) else type(given).__name__
    raise ConfigError(
        f"{what} can't serve as a backend: {told}. Give a framework's name, or an object of a "
        "class that derives from lpot.core.backend.Backend",
        path="framework",
    )


def _completed(given: Any) -> Backend:
    for name, default in vars(Backend).items():
        if not name.startswith("_") and not hasattr(given, name):
            is_method = isinstance(default, FunctionType)
            setattr(given, name, MethodType(default, given) if is_method else default)
    backend: Backend = given
    return backend


def implied_approach(name: str | None) -> Approach | None:
    """What the original's name says of static and dynamic; None when it says nothing."""
    return ALIASES[name][1] if name is not None and name in ALIASES else None


def missing_packages(name: str) -> tuple[str, ...]:
    """What to install before `framework: <name>` works; nothing is imported to find out."""
    return _missing(BACKENDS[name])


def _missing(entry: Entry) -> tuple[str, ...]:
    return tuple(
        package
        for module, package in entry.needs.items()
        if importlib.util.find_spec(module) is None
    )


def _make(name: str, entry: Entry) -> Backend:
    missing = _missing(entry)
    if missing:
        raise BackendUnavailable(name, " ".join(missing), entry.advice)
    try:
        backend: Backend = getattr(importlib.import_module(entry.module), entry.cls)()
    except ImportError as error:  # installed, but broken or of a wrong version
        raise BackendUnavailable(name, next(iter(entry.needs.values())), str(error)) from error
    return backend


def is_decoder(source: Any) -> bool:
    """Is it a transformers model, folder or object, that can be written as ONNX?"""
    return not missing_packages("onnx") and bool(_decoders().is_decoder(source))


def why_no_decoder(source: Any) -> str:
    """What a folder lacks that was most likely meant as a transformers decoder; else empty."""
    return str(_decoders().why_no_decoder(source))


def export_decoder(source: Any, folder: Path) -> Path:
    """A transformers decoder as ONNX with a KV cache; the path of its model.onnx."""
    return Path(_decoders().export_decoder(source, folder))


def copy_beside(source: Path, target: Path) -> None:
    """Tokenizer, configs and genai's settings of a decoder, into another folder."""
    _decoders().copy_beside(source, target)


def write_gptq(model: Path, source: Path, out: Path) -> Path:
    """A tuned decoder in GPTQ's files, from its model.onnx and the folder it was made from."""
    module = importlib.import_module("lpot.backends.onnx.decoder.gptq_files")
    return Path(module.write_gptq(model, source, out))


def load_gptq(folder: Path) -> Any:
    """A decoder from GPTQ's files as a transformers module with weights in few bits."""
    module = importlib.import_module("lpot.backends.torch.weight_only.decoder")
    return module.load_decoder(Path(folder))


def _decoders() -> Any:
    return importlib.import_module("lpot.backends.onnx.decoder.export")


def named_in(card: Mapping[str, Any]) -> str | None:
    """The framework that a saved model's card names; None for one that this version has not."""
    name = card.get("framework")
    return name if name in (*frameworks(), *runtimes()) else None


def detect(source: Any) -> str:
    """The framework of a model, from its class or file name; nothing is imported to find out."""
    if isinstance(source, Model):
        return source.framework
    if isinstance(source, str | Path):
        return _detect_path(Path(source))
    if isinstance(source, tuple) and source:  # MXNet's (symbol, arg_params, aux_params)
        return detect(source[0])
    for cls in type(source).__mro__:
        full = f"{cls.__module__}.{cls.__qualname__}"
        for start, name in CLASSES.items():
            if full.startswith(start):
                return name
    if isinstance(source, Mapping):
        raise UnsupportedModel(
            f"given {a_kind(source)} of {len(source)} entries: weights alone are not a "
            "model. Give the nn.Module after module.load_state_dict(...), or the model's file"
        )
    raise UnsupportedModel(
        f"can't tell the framework of a {type(source).__module__}.{type(source).__qualname__}: "
        f"set `framework` (one of {', '.join(frameworks())})"
    )


def _detect_path(path: Path) -> str:
    kind = (path.suffix or path.name).lower()  # `.meta` is the graph of a checkpoint without a name
    if kind in SUFFIXES:
        return SUFFIXES[kind]
    if path.name.endswith(SYMBOL) or Path(f"{path}{SYMBOL}").is_file():
        return "mxnet"
    if path.name == TFJS and path.is_file():
        return "tensorflow"
    if path.is_dir():
        for pattern, name in INSIDE.items():
            if any(path.glob(pattern)):
                return name
    if not path.exists():
        raise UnsupportedModel(f"{path}: no such file or folder")
    raise UnsupportedModel(
        f"can't tell the framework of {str(path)!r} from its name: "
        f"set `framework` (one of {', '.join(frameworks())})"
    )
