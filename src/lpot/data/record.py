"""TFRecord files and the Example messages inside, read without TensorFlow.

A record is: its length (8 bytes), the length's checksum (4), the data, the data's checksum (4).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import DataError
from lpot.data.checksum import crc32c_function, masked

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
GZIP_MAGIC = b"\x1f\x8b"

Features = dict[str, list[bytes] | np.ndarray]


class RecordFile:
    """One TFRecord file: iterate it, or take a record by number. Each read is checked.

    The headers are walked once, at the first question about length or place; the data is mapped,
    not read, so a file larger than memory is fine.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._places: list[tuple[int, int]] | None = None
        try:
            with self.path.open("rb") as stream:
                empty = self.path.stat().st_size == 0
                self._data = (
                    b"" if empty else mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                )
        except OSError as error:
            raise DataError(f"{self.path}: can't be read: {error.strerror or error}") from error
        if self._data[:2] == GZIP_MAGIC:
            raise DataError(f"{self.path}: a compressed record file; unpack it first (gunzip)")

    def __len__(self) -> int:
        return len(self._index())

    def __getitem__(self, number: int) -> bytes:
        start, length = self._index()[number]
        return self._read(number, start, length)

    def __iter__(self) -> Iterator[bytes]:
        for number, (start, length) in enumerate(self._walk()):
            yield self._read(number, start, length)

    def _index(self) -> list[tuple[int, int]]:
        if self._places is None:
            self._places = list(self._walk())
        return self._places

    def _walk(self) -> Iterator[tuple[int, int]]:
        """Where each record's data starts, and its length."""
        if self._places is not None:
            yield from self._places
            return
        crc, data, end = crc32c_function(), self._data, len(self._data)
        position = number = 0
        while position < end:
            if end - position < _HEADER.size:
                raise self._broken(number, position, "the file ends inside the record's header")
            length, check = _HEADER.unpack_from(data, position)
            if masked(crc(data[position : position + 8])) != check:
                raise self._broken(number, position, "the checksum of its length is wrong")
            if length > end - position - 16:
                raise self._broken(
                    number, position, f"the file ends inside its {length} bytes of data"
                )
            yield position + _HEADER.size, length
            position += length + 16
            number += 1

    def _read(self, number: int, start: int, length: int) -> bytes:
        data = self._data[start : start + length]
        (check,) = _FOOTER.unpack_from(self._data, start + length)
        if masked(crc32c_function()(data)) != check:
            raise self._broken(number, start - _HEADER.size, "the checksum of its data is wrong")
        return data

    def _broken(self, number: int, position: int, why: str) -> DataError:
        return DataError(
            f"{self.path}: record {number} (byte {position}) is damaged: {why}. "
            "Copy or create the file again"
        )


def parse_example(record: bytes, origin: str = "record") -> Features:
    """The features of a serialized Example: texts as lists of bytes, numbers as arrays.

    The Example message is field 1 (Features) → field 1 (entries) → key 1, value 2; a value holds
    one of bytes 1, floats 2, integers 3.
    """
    features: Features = {}
    try:
        for field, part in _fields(record, 0, len(record)):
            if field == 1:
                for _, entry in _fields(record, *part):
                    name, value = _entry(record, *entry)
                    features[name] = value
    except (IndexError, ValueError, struct.error) as error:
        raise DataError(f"{origin}: is not an Example message: {error}") from error
    return features


def _entry(data: bytes, start: int, end: int) -> tuple[str, list[bytes] | np.ndarray]:
    name, value = "", (start, start)
    for field, part in _fields(data, start, end):
        if field == 1:
            name = data[part[0] : part[1]].decode("utf-8")
        elif field == 2:
            value = part
    for field, (first, last) in _fields(data, *value):
        if field == 1:
            return name, [data[a:b] for _, (a, b) in _fields(data, first, last)]
        if field == 2:
            return name, _floats(data, first, last)
        if field == 3:
            return name, _integers(data, first, last)
    return name, []


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Each length-delimited field of a message, by number, with where its content lies."""
    position = start
    while position < end:
        key, position = _varint(data, position)
        if key & 7 != 2:
            raise ValueError(f"wire type {key & 7} at byte {position}")
        length, position = _varint(data, position)
        if length > end - position:
            raise ValueError(f"a field of {length} bytes at byte {position} is too long")
        yield key >> 3, (position, position + length)
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError(f"a number at byte {position} has no end")
    return value, position + 1


def _floats(data: bytes, start: int, end: int) -> np.ndarray:
    """Packed (key, length, then all values) or one key for each value."""
    parts: list[Any] = []
    position = start
    while position < end:
        kind = data[position] & 7
        length, position = _varint(data, position + 1) if kind == 2 else (4, position + 1)
        if position + length > end:
            raise ValueError(f"floats at byte {position} are cut off")
        parts.append(np.frombuffer(data, "<f4", length // 4, position))
        position += length
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def _integers(data: bytes, start: int, end: int) -> np.ndarray:
    values: list[int] = []
    position = start
    while position < end:
        kind = data[position] & 7
        length, position = _varint(data, position + 1) if kind == 2 else (0, position + 1)
        last = position + length if kind == 2 else position + 1
        while position < last:
            value, position = _varint(data, position)
            # A negative number is stored as its 64-bit complement.
            values.append(value - (1 << 64) if value >> 63 else value)
    return np.asarray(values, dtype=np.int64)
