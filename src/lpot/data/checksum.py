"""CRC-32C, the checksum of TFRecord files: google-crc32c if installed, else numpy tables."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
BLOCK = 512


@functools.cache
def crc32c_function() -> Callable[[bytes], int]:
    """The fastest CRC-32C at hand."""
    try:
        from google_crc32c import value
    except ImportError:
        return crc32c_numpy
    return value  # type: ignore[no-any-return]


def masked(crc: int) -> int:
    """The form in which TFRecord stores a checksum: rotated and offset."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def _tables() -> np.ndarray:
    """Row k: what each byte value adds to the checksum when k bytes follow it.

    A CRC is linear, so a block's checksum is the xor of what each byte adds by its place.
    """
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(POLYNOMIAL), np.uint32(0))
    rows = np.empty((BLOCK, 256), dtype=np.uint32)
    rows[0] = table
    for number in range(1, BLOCK):
        before = rows[number - 1]
        rows[number] = (before >> 8) ^ table[before & 0xFF]
    return rows


def crc32c_numpy(data: bytes) -> int:
    """CRC-32C by numpy tables, block by block.

    >>> hex(crc32c_numpy(b"123456789"))
    '0xe3069283'
    """
    rows = _tables()
    values = np.frombuffer(data, dtype=np.uint8)
    whole = len(values) // BLOCK
    register = 0xFFFFFFFF
    if whole:
        places = np.arange(BLOCK - 1, -1, -1)
        body = values[: whole * BLOCK].reshape(whole, BLOCK)
        for added in np.bitwise_xor.reduce(rows[places, body], axis=1).tolist():
            register = _advance(rows, register, BLOCK) ^ added
    tail = values[whole * BLOCK :]
    if len(tail) >= 4:
        added = int(np.bitwise_xor.reduce(rows[np.arange(len(tail) - 1, -1, -1), tail]))
        register = _advance(rows, register, len(tail)) ^ added
    else:
        for byte in tail.tolist():
            register = (register >> 8) ^ int(rows[0][(register ^ byte) & 0xFF])
    return register ^ 0xFFFFFFFF


def _advance(rows: np.ndarray, register: int, count: int) -> int:
    """The register after `count` zero bytes, four or more: its own bytes, as if read first."""
    return int(
        rows[count - 1][register & 0xFF]
        ^ rows[count - 2][(register >> 8) & 0xFF]
        ^ rows[count - 3][(register >> 16) & 0xFF]
        ^ rows[count - 4][register >> 24]
    )
