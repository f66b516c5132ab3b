"""What `lpot doctor` tells: the machine, the packages, and what is missing for what."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from lpot.backends import BACKENDS, frameworks, get_backend
from lpot.core.cpu import VNNI, Cpu, probe
from lpot.core.errors import LpotError
from lpot.demo import demo_model_path
from lpot.version import VERSION


@dataclass(frozen=True)
class Package:
    """A package lpot can use. `names`: what it may be installed under, the advised one first."""

    module: str
    names: tuple[str, ...]
    purpose: str
    required: bool = False

    @property
    def install(self) -> str:
        return f"pip install {self.names[0]}"


PACKAGES = (
    Package("onnx", ("onnx",), "ONNX models", required=True),
    Package("onnxruntime", ("onnxruntime", "onnxruntime-gpu"), "ONNX models", required=True),
    Package("torch", ("torch",), "PyTorch models"),
    Package(
        "tensorflow", ("tensorflow-cpu", "tensorflow", "intel-tensorflow"), "TensorFlow models"
    ),
    Package("mxnet", ("mxnet",), "MXNet models"),
    Package("transformers", ("transformers",), "tokenizers and models from the hub"),
    Package("safetensors", ("safetensors",), "saved PyTorch models"),
    Package("optuna", ("optuna",), "search strategies"),
    Package("scipy", ("scipy",), "search strategies and metrics"),
    Package("sklearn", ("scikit-learn",), "metrics"),
    Package("PIL", ("Pillow",), "images"),
    Package("pycocotools", ("pycocotools",), "COCO metrics"),
    Package("sacrebleu", ("sacrebleu",), "BLEU"),
    Package("google_crc32c", ("google-crc32c",), "faster TFRecord checks"),
)


@dataclass(frozen=True)
class Found:
    """A package and the version that is here; None when it is missing."""

    package: Package
    version: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "module": self.package.module,
            "purpose": self.package.purpose,
            "version": self.version,
            "install": None if self.version else self.package.install,
        }


@dataclass(frozen=True)
class Diagnosis:
    """Everything found on this machine."""

    cpu: Cpu
    packages: tuple[Found, ...]
    frameworks: tuple[str, ...]
    bits: Mapping[str, int] = field(default_factory=dict)  # kind of op → weight bits that are safe
    trouble: tuple[str, ...] = ()
    disk_free: int = 0

    @property
    def ok(self) -> bool:
        return not self.trouble

    @property
    def missing(self) -> tuple[Package, ...]:
        return tuple(found.package for found in self.packages if found.version is None)

    def to_json(self) -> dict[str, Any]:
        return {
            "lpot": VERSION,
            "python": platform.python_version(),
            "system": platform.platform(),
            "cpu": self.cpu.to_json(),
            "safe_weight_bits": dict(self.bits),
            "frameworks": list(self.frameworks),
            "packages": [found.to_json() for found in self.packages],
            "trouble": list(self.trouble),
            "disk_free": self.disk_free,
        }

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """(name, state, text), in the order a person reads them."""
        cpu = self.cpu
        yield "lpot", "ok", f"{VERSION}, Python {platform.python_version()}, {platform.platform()}"
        yield "CPU", "ok", f"{cpu.name}, {cpu.cores} cores usable, {cpu.physical_cores} physical"
        fast = cpu.has(*VNNI, "asimddp", "i8mm")
        text = ", ".join(cpu.features) or "none known"
        slow = "" if fast else ": no fast INT8 instructions, expect smaller gains"
        yield "features", "ok" if fast else "note", text + slow
        if cpu.memory:
            text = f"{cpu.available / 1e9:.1f} GB available of {cpu.memory / 1e9:.1f} GB"
            yield "memory", "ok", text
        yield "disk", "ok", f"{self.disk_free / 1e9:.1f} GB free here"
        for index, (kind, bits) in enumerate(sorted(self.bits.items())):
            safe = "8-bit weights are exact" if bits == 8 else f"8 bits overflow: {bits} are used"
            yield "" if index else "self-test", "ok" if bits == 8 else "note", f"{kind}: {safe}"
        yield "serves", "ok", ", ".join(self.frameworks)
        for found in self.packages:
            yield _row(found)
        for text in (*self.trouble, *cpu.notes):
            yield "", "fail" if text in self.trouble else "note", text


def _row(found: Found) -> tuple[str, str, str]:
    package = found.package
    if found.version is None:
        return package.names[0], "missing", f"for {package.purpose}: {package.install}"
    return package.names[0], "ok", f"{found.version}, for {package.purpose}"


def diagnose() -> Diagnosis:
    """Look around. Only ONNX Runtime is imported, for the self-test of its kernels."""
    packages = tuple(Found(package, _version(package)) for package in PACKAGES)
    here = {found.package.module for found in packages if found.version is not None}
    trouble = [
        f"{package.names[0]} is needed for the default backend: {package.install}"
        for package in PACKAGES
        if package.required and package.module not in here
    ]
    bits: dict[str, int] = {}
    if not trouble:
        try:
            bits = safe_bits()
        except LpotError as error:
            trouble.append(str(error))
    free = shutil.disk_usage(Path.cwd()).free
    return Diagnosis(probe(), packages, frameworks(), bits, tuple(trouble), free)


def safe_bits() -> dict[str, int]:
    """Weight bits by kind of op, as the default backend's self-test of this CPU finds them.

    Asked through the demo's model, so that what is told is what a tuning would do.
    """
    backend = get_backend(next(iter(BACKENDS)))
    capability = backend.inspect(backend.load(demo_model_path()))
    found: dict[str, int] = {}
    for info in capability.low():
        weight = info.choices[0].weight
        if weight is not None and weight.bits is not None:
            found.setdefault(info.key.kind, weight.bits)
    return found


def _version(package: Package) -> str | None:
    """Read, not imported: a framework takes seconds to import and may print."""
    if importlib.util.find_spec(package.module) is None:
        return None
    for name in package.names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "of unknown version"
