"""GPTQ: columns are rounded one after the other, and those to come make up for the error.

Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers",
ICLR 2023. Rows are independent of each other given the Hessian, so that they are worked on in
chunks; weights are held transposed, so that a column is contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.weight_only.grid import Codes, Floats, Format, Rounded, encode, fit, in_groups

Doubles = npt.NDArray[np.float64]

ROWS = 4096  # that are worked on at a time
BLOCK = 32  # columns whose error is passed on at once
DAMPING = 0.01  # share of the mean diagonal that is added to it
MOST_DAMPING = 10.0
SMALL_TRIANGLE = 64


@dataclass(frozen=True)
class Settings:
    damping: float = DAMPING
    act_order: bool = True  # columns with the largest activations come first
    block: int = BLOCK


USUAL = Settings()


@dataclass(frozen=True, eq=False)
class Factored:
    """What the inputs of a product say of its columns: the same for all formats, and for all
    products with these inputs. Finding it takes most of the time where there are many columns."""

    energy: Floats
    order: npt.NDArray[Any]
    factor: Floats


def factored(hessian: npt.NDArray[Any], settings: Settings = USUAL) -> Factored:
    """`hessian` ([K, K]) is the mean of x xᵀ over the inputs."""
    if not np.isfinite(hessian).all():  # the calibration overflowed: each column for itself
        hessian = np.eye(len(hessian))
    energy = np.diagonal(hessian).astype(np.float32)
    order = np.argsort(-energy, kind="stable") if settings.act_order else np.arange(len(energy))
    return Factored(energy, order, inverse_factor(hessian, order, settings.damping))


def gptq(
    weight: Floats,
    inputs: npt.NDArray[Any] | Factored,
    fmt: Format,
    settings: Settings = USUAL,
) -> Rounded:
    """The weight ([N, K]) on the grid; the inputs as their Hessian, or as it was factored."""
    known = inputs if isinstance(inputs, Factored) else factored(inputs, settings)
    columns = weight.shape[1]
    if len(known.energy) != columns:
        size = len(known.energy)
        raise ValueError(f"a Hessian of {size} inputs does not match {columns} columns")
    parts = [
        _rows(weight[at : at + ROWS], known.energy, known.order, known.factor, fmt, settings)
        for at in range(0, len(weight), ROWS)
    ]
    codes, scales, zeros = zip(*parts, strict=True)
    return Rounded(
        fmt,
        np.concatenate(codes),
        np.concatenate(scales),
        None if fmt.symmetric else np.concatenate(zeros),
    )


def inverse_factor(hessian: npt.NDArray[Any], order: npt.NDArray[Any], damping: float) -> Floats:
    """The upper Cholesky factor of the damped Hessian's inverse, in the order of the columns.

    With rows and columns in reverse, the Hessian is U Uᵀ with an upper triangle U, whose inverse it
    is: nothing but a triangle need be inverted.
    """
    ordered: Doubles = hessian[np.ix_(order[::-1], order[::-1])].astype(np.float64)
    diagonal = np.diagonal(ordered).copy()
    diagonal[diagonal <= 0] = 1.0  # an input that was never active: any weight will do
    mean = float(diagonal.mean())
    while damping <= MOST_DAMPING:
        np.fill_diagonal(ordered, diagonal + damping * mean)
        try:
            upper: Doubles = np.ascontiguousarray(np.linalg.cholesky(ordered)[::-1, ::-1])
        except np.linalg.LinAlgError:
            damping *= 10
            continue
        return _inverse(upper).astype(np.float32)
    return np.eye(len(order), dtype=np.float32)


def _inverse(upper: Doubles) -> Doubles:
    """Of a triangle, by halves: most of the work is in products."""
    size = len(upper)
    if size <= SMALL_TRIANGLE:
        return np.triu(np.linalg.inv(upper))
    half = size // 2
    found = np.zeros_like(upper, order="C")
    first = found[:half, :half] = _inverse(upper[:half, :half])
    second = found[half:, half:] = _inverse(upper[half:, half:])
    found[:half, half:] = -(first @ upper[:half, half:]) @ second
    return found


def _rows(
    weight: Floats,
    energy: Floats,
    order: npt.NDArray[Any],
    factor: Floats,
    fmt: Format,
    settings: Settings,
) -> tuple[Codes, Floats, Codes]:
    rows, columns = weight.shape
    width = fmt.width(columns)
    left = np.ascontiguousarray(
        weight.T[order], dtype=np.float32
    )  # [K, N]: what is not rounded yet
    weigh = in_groups(energy[None], fmt)[0]
    # With columns out of order the grid of a group must be known before its first column comes.
    fixed = settings.act_order
    scales = np.empty((fmt.groups(columns), rows), np.float32)
    zeros = np.full((fmt.groups(columns), rows), fmt.middle, np.float32)
    if fixed:
        found, offset = fit(in_groups(weight.astype(np.float32), fmt), fmt, weigh)
        scales[:] = found.T
        zeros[:] = fmt.middle if offset is None else offset.T
    codes = np.empty((columns, rows), np.uint8)
    for start, end in pairwise(_cuts(columns, settings.block, width)):
        errors = np.empty((end - start, rows), np.float32)
        for at in range(start, end):
            group = int(order[at]) // width
            if not fixed and at % width == 0:
                _fit_group(left, at, width, group, fmt, weigh, scales, zeros)
            scale, zero = scales[group], zeros[group]
            code = encode(left[at], scale, zero, fmt)
            codes[order[at]] = code
            errors[at - start] = (left[at] - (code - zero) * scale) / factor[at, at]
            left[at + 1 : end] -= factor[at, at + 1 : end, None] * errors[at - start]
        left[end:] -= factor[start:end, end:].T @ errors
    return codes.T, scales.T, zeros.T.astype(np.uint8)


def _cuts(columns: int, block: int, width: int) -> list[int]:
    """Where blocks begin: a group's grid is fitted when all errors before it were passed on."""
    return sorted({*range(0, columns, block), *range(0, columns, width), columns})


def _fit_group(
    left: Floats,
    at: int,
    width: int,
    group: int,
    fmt: Format,
    energy: Floats,
    scales: Floats,
    zeros: Floats,
) -> None:
    """The grid of a group from its weights as they are now, errors of earlier columns included."""
    now = np.ascontiguousarray(left[at : at + width].T)[:, None, :]
    found, offset = fit(now, fmt, energy[group : group + 1, : now.shape[2]])
    scales[group] = found[:, 0]
    zeros[group] = fmt.middle if offset is None else offset[:, 0]
