"""What `lpot doctor` tells: the machine, the packages, and what is missing for what."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from lpot.backends import BACKENDS, get_backend, missing_packages
from lpot.core.cpu import Cpu, probe
from lpot.core.errors import LpotError
from lpot.demo import demo_model_path
from lpot.version import VERSION


@dataclass(frozen=True)
class Package:
    """A package lpot can use. `names`: what it may be installed under, the advised one first."""

    module: str
    names: tuple[str, ...]
    purpose: str

    @property
    def install(self) -> str:
        """What to do to have it, on this Python and this machine."""
        if self.module == "mxnet":
            return _mxnet_advice()
        if self.module == "tensorflow" and platform.machine() not in ("x86_64", "AMD64"):
            return "pip install tensorflow"  # tensorflow-cpu is built for x86 alone
        return f"pip install {self.names[0]}"


PACKAGES = (
    Package("onnx", ("onnx",), "ONNX models"),
    Package("onnxruntime", ("onnxruntime", "onnxruntime-gpu"), "ONNX models"),
    Package("torch", ("torch",), "PyTorch models"),
    Package(
        "tensorflow", ("tensorflow-cpu", "tensorflow", "intel-tensorflow"), "TensorFlow models"
    ),
    Package("mxnet", ("mxnet",), "MXNet models"),
    Package("transformers", ("transformers",), "tokenizers and models from the hub"),
    Package("safetensors", ("safetensors",), "saved PyTorch models"),
    Package("tf2onnx", ("tf2onnx",), "TensorFlow models as ONNX"),
    Package("optuna", ("optuna",), "search strategies"),
    Package("scipy", ("scipy",), "search strategies and metrics"),
    Package("sklearn", ("scikit-learn",), "metrics"),
    Package("PIL", ("Pillow",), "images"),
    Package("pycocotools", ("pycocotools",), "COCO metrics"),
    Package("sacrebleu", ("sacrebleu",), "BLEU"),
    Package("google_crc32c", ("google-crc32c",), "faster TFRecord checks"),
)
# Frameworks that another interpreter may serve, and the variable that names it.
ELSEWHERE = {"mxnet": "LPOT_MXNET_PYTHON"}
# What the kind of CPU means for a user's models; the figures are those of `make bench`.
MEANINGS = {
    "amx": "it multiplies INT8 matrices in hardware: large models gain most, and all 8 bits are "
    "used",
    "vnni": "it sums INT8 products exactly: convolutions and matrix products gain, and all 8 bits "
    "are used",
    "avx2": "it has no VNNI: INT8 still pays (1.4 to 3 times the speed of FP32 on common nets), "
    "with 7 bits where 8 would overflow; a model tuned here is correct on newer CPUs, too",
    "i8mm": "it multiplies INT8 matrices in hardware; lpot is tested on x86 only, so measure",
    "dotprod": "it sums INT8 products exactly; lpot is tested on x86 only, so measure",
}
UNKNOWN = "it has no known INT8 instructions: expect smaller models, not faster ones, and measure"


def _mxnet_advice() -> str:
    """It can't live beside today's numpy, and its last release knows no newer Python."""
    if platform.machine() != "x86_64":
        return "its last release is for x86 only"
    install = BACKENDS["mxnet"].needs["mxnet"]
    tail = f"a separate environment, named in {ELSEWHERE['mxnet']}: pip install {install}"
    return f"in {tail}" if sys.version_info < (3, 12) else f"with Python 3.11 in {tail}"


@dataclass(frozen=True)
class Installed:
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
    packages: tuple[Installed, ...]
    frameworks: tuple[str, ...]
    bits: Mapping[str, int] = field(default_factory=dict)  # kind of op → weight bits that are safe
    trouble: tuple[str, ...] = ()
    disk_free: int = 0

    @property
    def ok(self) -> bool:
        return not self.trouble

    @property
    def meaning(self) -> str:
        """What the CPU's kind means for the user's models, in one sentence."""
        return MEANINGS.get(self.cpu.kind, UNKNOWN)

    @property
    def missing(self) -> tuple[Package, ...]:
        return tuple(found.package for found in self.packages if found.version is None)

    def to_json(self) -> dict[str, Any]:
        return {
            "lpot": VERSION,
            "python": platform.python_version(),
            "system": platform.platform(),
            "cpu": {**self.cpu.to_json(), "kind": self.cpu.kind, "meaning": self.meaning},
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
        yield "kind", "ok" if cpu.kind in MEANINGS else "note", f"{cpu.kind}: {self.meaning}"
        yield "features", "ok", ", ".join(cpu.features) or "none known"
        if cpu.memory:
            text = f"{cpu.available / 1e9:.1f} GB available of {cpu.memory / 1e9:.1f} GB"
            yield "memory", "ok", text
        yield "disk", "ok", f"{self.disk_free / 1e9:.1f} GB free here"
        for index, (kind, bits) in enumerate(sorted(self.bits.items())):
            safe = "8-bit weights are exact" if bits == 8 else f"8 bits overflow: {bits} are used"
            yield "" if index else "self-test", "ok" if bits == 8 else "note", f"{kind}: {safe}"
        yield "serves", "ok" if self.frameworks else "fail", ", ".join(self.frameworks) or "none"
        for found in self.packages:
            yield _row(found)
        for text in (*self.trouble, *cpu.notes):
            yield "", "fail" if text in self.trouble else "note", text


def _row(found: Installed) -> tuple[str, str, str]:
    package = found.package
    if found.version is None and _elsewhere(package.module):
        where = os.environ[ELSEWHERE[package.module]]
        return package.names[0], "ok", f"for {package.purpose}: run by {where}"
    if found.version is None:
        return package.names[0], "missing", f"for {package.purpose}: {package.install}"
    return package.names[0], "ok", f"{found.version}, for {package.purpose}"


def diagnose() -> Diagnosis:
    """Look around. Only ONNX Runtime is imported, for the self-test of its kernels."""
    packages = tuple(Installed(package, _version(package)) for package in PACKAGES)
    served = tuple(name for name in BACKENDS if not missing_packages(name) or _elsewhere(name))
    trouble = []
    if not served:
        trouble.append(
            "no framework is installed: pip install onnx onnxruntime for ONNX models, torch for "
            "PyTorch's, tensorflow-cpu for TensorFlow's; one is enough"
        )
    bits: dict[str, int] = {}
    if "onnx" in served:
        try:
            bits = safe_bits()
        except LpotError as error:
            trouble.append(str(error))
    free = shutil.disk_usage(Path.cwd()).free
    return Diagnosis(probe(), packages, served, bits, tuple(trouble), free)


def _elsewhere(framework: str) -> bool:
    """Does another interpreter serve it?"""
    variable = ELSEWHERE.get(framework, "")
    return bool(variable) and shutil.which(os.environ.get(variable, "")) is not None


def safe_bits() -> dict[str, int]:
    """Weight bits by kind of op, as ONNX Runtime's self-test of this CPU finds them.

    Asked through the demo's model, so that what is told is what a tuning would do.
    """
    backend = get_backend("onnx")
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
