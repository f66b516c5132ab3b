"""Codes in the layouts that other programs read: MatMulNBits of ONNX Runtime, and GPTQ's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lpot.core.weight_only.grid import Codes, Floats, Format, Rounded

Words = npt.NDArray[np.int32]


def pack_bits(codes: Codes, bits: int) -> Codes:
    """Codes along the last axis, several to a byte, the first in the lowest bits."""
    if bits == 8:
        return codes
    if bits not in (2, 4):
        raise ValueError(f"{bits} bits do not fill bytes: 2, 4 and 8 can be packed")
    each = 8 // bits
    if codes.shape[-1] % each:
        pad = [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % each)]
        codes = np.pad(codes, pad)
    grouped = codes.reshape(*codes.shape[:-1], -1, each)
    packed = np.zeros(grouped.shape[:-1], np.uint8)
    for place in range(each):
        packed |= grouped[..., place] << np.uint8(bits * place)
    return packed


def unpack_bits(packed: Codes, bits: int, count: int) -> Codes:
    if bits == 8:
        return packed[..., :count]
    mask = np.uint8((1 << bits) - 1)
    parts = [(packed >> np.uint8(bits * place)) & mask for place in range(8 // bits)]
    return np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1)[..., :count]


def pack_matmul_nbits(rounded: Rounded) -> tuple[Codes, Floats, Codes | None]:
    """B [N, blocks, bytes], scales [N, blocks] and zero points [N, bytes] of a MatMulNBits node.

    Bits are 2, 4 or 8. A row that the block does not divide is filled up with the code of zero.
    """
    fmt = rounded.format
    rows, columns = rounded.codes.shape
    width, groups = fmt.width(columns), fmt.groups(columns)
    codes = np.full((rows, groups * width), fmt.middle, np.uint8)
    codes[:, :columns] = rounded.codes
    packed = pack_bits(codes.reshape(rows, groups, width), fmt.bits)
    zeros = None if rounded.zeros is None else pack_bits(rounded.zeros, fmt.bits)
    return packed, rounded.scales, zeros


def unpack_matmul_nbits(
    packed: Codes, scales: Floats, zeros: Codes | None, fmt: Format, columns: int
) -> Rounded:
    width = fmt.width(columns)
    codes = unpack_bits(packed, fmt.bits, width).reshape(len(packed), -1)[:, :columns]
    offsets = None if zeros is None else unpack_bits(zeros, fmt.bits, scales.shape[1])
    return Rounded(fmt, codes, scales, offsets)


def pack_gptq(rounded: Rounded, less: int = 1) -> dict[str, npt.NDArray[np.generic]]:
    """The tensors of one linear in the files of GPTQ: qweight, qzeros, scales, g_idx.

    Words of 32 bits hold codes of 2, 4 or 8 bits: along the columns in `qweight` [K/.., N], along
    the rows in `qzeros` [groups, N/..]. Zero points are written less one, as readers add it; in the
    format gptq_v2 as they are (`less` 0).
    """
    fmt = rounded.format
    columns = rounded.codes.shape[1]
    middle = np.full(rounded.scales.shape, fmt.middle, np.uint8)
    zeros = middle if rounded.zeros is None else rounded.zeros
    return {
        "qweight": _words(rounded.codes, fmt.bits).T.copy(),
        "qzeros": _words(((zeros.astype(np.int16) - less) & fmt.top).astype(np.uint8).T, fmt.bits),
        "scales": np.ascontiguousarray(rounded.scales.T),
        "g_idx": (np.arange(columns) // fmt.width(columns)).astype(np.int32),
    }


def unpack_gptq(
    tensors: dict[str, npt.NDArray[np.generic]], fmt: Format, columns: int, less: int = 1
) -> Rounded:
    scales = np.asarray(tensors["scales"], np.float32).T
    rows = len(scales)
    codes = _codes(np.asarray(tensors["qweight"], np.int32).T, fmt.bits, columns)
    stored = _codes(np.asarray(tensors["qzeros"], np.int32), fmt.bits, rows).T
    zeros = ((stored.astype(np.int16) + less) & fmt.top).astype(np.uint8)
    alike = fmt.symmetric and bool((zeros == fmt.middle).all())
    return Rounded(fmt, codes, np.ascontiguousarray(scales), None if alike else zeros)


def _words(codes: Codes, bits: int) -> Words:
    """[R, C] in words of 32 bits along the last axis."""
    packed = pack_bits(codes, bits)
    missing = -packed.shape[-1] % 4
    padded = np.pad(packed, ((0, 0), (0, missing)))
    return np.ascontiguousarray(padded).view("<i4")


def _codes(words: Words, bits: int, count: int) -> Codes:
    return unpack_bits(np.ascontiguousarray(words, "<i4").view(np.uint8), bits, count)
