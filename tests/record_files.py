"""TFRecord files and Example messages, written by the wire format: no framework is needed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lpot.data.checksum import crc32c_function, masked


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
    """An Example message: lists of bytes, arrays of floats or of whole numbers."""
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


def write(path: Path, records: Iterable[bytes]) -> Path:
    crc = crc32c_function()
    with path.open("wb") as stream:
        for record in records:
            length = struct.pack("<Q", len(record))
            stream.write(length + struct.pack("<I", masked(crc(length))))
            stream.write(record + struct.pack("<I", masked(crc(record))))
    return path
