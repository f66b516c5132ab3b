"""Where the real data lies, and how small files of each format are made."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpot.data.checksum import crc32c_function, masked

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data() -> Path:
    folder = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data at {folder}: set LPOT_DATA")
    return folder


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def serialize(features: Mapping[str, Any]) -> bytes:
    """An Example message, by the wire format."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, list):
            feature = _field(1, b"".join(_field(1, item) for item in value))
        elif value.dtype.kind == "f":
            feature = _field(2, _field(1, value.astype("<f4").tobytes()))
        else:
            feature = _field(3, _field(1, b"".join(_varint(int(item)) for item in value)))
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)


@pytest.fixture(scope="session")
def example() -> Callable[[Mapping[str, Any]], bytes]:
    return serialize


@pytest.fixture(scope="session")
def write_records() -> Callable[[Path, list[bytes]], Path]:
    def write(path: Path, records: list[bytes]) -> Path:
        crc = crc32c_function()
        with path.open("wb") as stream:
            for record in records:
                length = struct.pack("<Q", len(record))
                stream.write(length + struct.pack("<I", masked(crc(length))))
                stream.write(record + struct.pack("<I", masked(crc(record))))
        return path

    return write


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
