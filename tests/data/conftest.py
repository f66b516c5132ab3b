"""Where the real data lies, and how small files of each format are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import record_files

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data() -> Path:
    folder = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data at {folder}: set LPOT_DATA")
    return folder


@pytest.fixture(scope="session")
def example() -> Callable[[Mapping[str, Any]], bytes]:
    return record_files.serialize


@pytest.fixture(scope="session")
def write_records() -> Callable[[Path, list[bytes]], Path]:
    return record_files.write


@pytest.fixture(scope="session")
def picture() -> Callable[..., np.ndarray]:
    def make(height: int = 37, width: int = 53, channels: int = 3, seed: int = 0) -> np.ndarray:
        return np.random.default_rng(seed).integers(
            0, 256, (height, width, channels), dtype=np.uint8
        )

    return make


@pytest.fixture(scope="session")
def jpeg(picture: Callable[..., np.ndarray]) -> Callable[..., bytes]:
    import io

    image = pytest.importorskip("PIL.Image")

    def encode(*size: int, format: str = "JPEG", mode: str = "RGB") -> bytes:
        stream = io.BytesIO()
        image.fromarray(picture(*size)).convert(mode).save(stream, format=format)
        return stream.getvalue()

    return encode
