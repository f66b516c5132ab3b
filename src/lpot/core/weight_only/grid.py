"""The grids that weights are rounded to: bits, groups of columns, symmetric or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]

BITS = (2, 3, 4, 8)
GROUPS = (16, 32, 64, 128, 256)
PER_CHANNEL = 0  # as a group size: one group as long as the row
SHRINKING = tuple(1.0 - 0.04 * step for step in range(10))  # of a range, where clipping is tried
CHUNK = 1 << 22  # weights that are worked on at a time, so that memory stays bounded


@dataclass(frozen=True)
class Format:
    """How a weight is stored. `group_size` 0 stands for one group a row."""

    bits: int
    group_size: int = 32
    symmetric: bool = True

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"bits is {self.bits}, expected one of {', '.join(map(str, BITS))}")
        if self.group_size not in (PER_CHANNEL, *GROUPS):
            accepted = ", ".join(map(str, GROUPS))
            raise ValueError(f"group_size is {self.group_size}, expected 0 or one of {accepted}")

    @property
    def top(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The code of zero where the grid is symmetric."""
        return 1 << (self.bits - 1)

    def width(self, columns: int) -> int:
        """Columns of one group in a row of so many."""
        return self.group_size or columns

    def groups(self, columns: int) -> int:
        return -(-columns // self.width(columns))


@dataclass(frozen=True, eq=False)
class Rounded:
    """A weight of N rows (output channels) and K columns on a grid.

    value = (code - zero) * scale. The last group of a row may be shorter than the others.
    """

    format: Format
    codes: Codes  # [N, K]
    scales: Floats  # [N, groups]
    zeros: Codes | None  # [N, groups]; None: the middle, in symmetric formats

    def values(self) -> Floats:
        """The weight that these codes stand for; made in place, for a head is large."""
        found = in_groups(self.codes.astype(np.float32), self.format)
        found -= np.float32(self.format.middle) if self.zeros is None else self.zeros[..., None]
        found *= self.scales[..., None]
        return found.reshape(len(found), -1)[:, : self.codes.shape[1]]

    @property
    def bits_per_weight(self) -> float:
        """Codes, scales in float32 and zero points."""
        columns = int(self.codes.shape[1])
        groups = self.format.groups(columns)
        zeros = 0 if self.zeros is None else groups * self.format.bits
        return self.format.bits + (32 * groups + zeros) / columns


def in_groups(weight: Floats, fmt: Format) -> Floats:
    """[N, K] as [N, groups, width]; a short last group is filled up with zeros, which no grid
    here moves: all of them hold 0."""
    rows, columns = weight.shape
    width = fmt.width(columns)
    missing = fmt.groups(columns) * width - columns
    if missing:
        weight = np.pad(weight, ((0, 0), (0, missing)))
    return weight.reshape(rows, -1, width)


def fit(groups: Floats, fmt: Format, energy: Floats | None = None) -> tuple[Floats, Codes | None]:
    """Scales and zero points of weights in groups ([N, G, width]), clipped where that pays.

    Among ranges shrunk by a few per cent each, the one with the least squared error wins, each
    column weighed by the energy of the activation that it multiplies ([G, width]).
    """
    ends = np.minimum(groups.min(axis=-1), 0), np.maximum(groups.max(axis=-1), 0)
    best_scales, best_zeros = _grid(*ends, fmt, SHRINKING[0])
    if fmt.bits == 8:  # 256 steps: what clipping cuts off weighs more than finer steps win
        return best_scales, None if fmt.symmetric else best_zeros.astype(np.uint8)
    least = _error(groups, best_scales, best_zeros, fmt, energy)
    for share in SHRINKING[1:]:
        scales, zeros = _grid(*ends, fmt, share)
        error = _error(groups, scales, zeros, fmt, energy)
        better = error < least
        best_scales = np.where(better, scales, best_scales)
        best_zeros = np.where(better, zeros, best_zeros)
        least = np.where(better, error, least)
    return best_scales, None if fmt.symmetric else best_zeros.astype(np.uint8)


def _grid(low: Floats, high: Floats, fmt: Format, share: float) -> tuple[Floats, Floats]:
    """Scales and zero points of ranges of which so much is kept; each range holds 0."""
    low, high = low * np.float32(share), high * np.float32(share)
    if fmt.symmetric:
        # There is one more code below zero than above: the longer side gets it, by the sign.
        longer = np.where(-low >= high, -low, -high)
        scales: Floats = np.asarray(longer / np.float32(fmt.middle), np.float32)
        zeros: Floats = np.full_like(scales, fmt.middle)
    else:
        scales = np.asarray((high - low) / np.float32(fmt.top), np.float32)
        zeros = np.zeros_like(scales)
        np.divide(-low, scales, out=zeros, where=scales != 0)
        zeros = np.clip(np.rint(zeros), 0, fmt.top).astype(np.float32)
    # A group of zeros, or of denormals whose reciprocal overflows, is stored as zeros.
    usable = np.abs(scales) > 1e-30
    return np.where(usable, scales, np.float32(1)).astype(np.float32), zeros


def encode(groups: Floats, scales: Floats, zeros: Floats | Codes | int, fmt: Format) -> Floats:
    """Codes, still as floats; `scales` and `zeros` broadcast against the weights."""
    codes: Floats = np.clip(np.rint(groups / scales) + zeros, 0, fmt.top)
    return codes


def _error(
    groups: Floats, scales: Floats, zeros: Floats, fmt: Format, energy: Floats | None
) -> Floats:
    scale, zero = scales[..., None], zeros[..., None]
    off = (encode(groups, scale, zero, fmt) - zero) * scale - groups
    with np.errstate(over="ignore"):  # of weights beyond all measure: no range is better then
        np.square(off, out=off)
    if energy is not None:
        off *= energy
    # As a product: sums over axes as short as a group are slow.
    return np.asarray(off @ np.ones(off.shape[-1], np.float32))
