"""Scales, zero points and rounding: the one copy of quantization arithmetic for all backends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.errors import did_you_mean
from lpot.core.numerics.histogram import TensorStats

__all__ = [
    "SCALE_FLOOR",
    "QuantParams",
    "TensorStats",
    "affine",
    "dequantize",
    "quantize",
    "quantize_weight",
    "sqnr",
]

Array = npt.NDArray[Any]

# The product of two scales (activation and weight, for an int32 bias) is still a normal float32.
SCALE_FLOOR = 2.0**-60

# dtype → (bits, signed, numpy storage)
_DTYPES: dict[str, tuple[int, bool, type[np.generic]]] = {
    "int4": (4, True, np.int8),
    "uint4": (4, False, np.uint8),
    "int8": (8, True, np.int8),
    "uint8": (8, False, np.uint8),
    "int16": (16, True, np.int16),
    "uint16": (16, False, np.uint16),
    "int32": (32, True, np.int32),
}
_SCHEMES = ("asym", "sym")


@dataclass(frozen=True, eq=False)
class QuantParams:
    """real = (q - zero_point) * scale, with q in [qmin, qmax]; arrays along `axis` per channel."""

    scale: float | Array
    zero_point: int | Array
    qmin: int
    qmax: int
    dtype: str
    axis: int | None = None

    @property
    def storage(self) -> type[np.generic]:
        """The numpy type that holds q; 4-bit values lie one per byte."""
        return _DTYPES[self.dtype][2]


def affine(
    lo: float | Array,
    hi: float | Array,
    dtype: str = "uint8",
    scheme: str = "asym",
    bits: int = 8,
    *,
    axis: int | None = None,
    floor: float | Array = SCALE_FLOOR,
) -> QuantParams:
    """Scale and zero point for a range; 0 is always exact and the scale never vanishes.

    `bits` below the dtype's narrows the integers used (7 on CPUs whose kernels saturate). A range
    of nothing but 0 gets scale 1. `sym` on an unsigned dtype puts zero at 0 for ranges without
    negatives, and in the middle otherwise.

    >>> params = affine(-1.0, 3.0)
    >>> params.zero_point, round(params.scale, 6)
    (64, 0.015686)
    """
    qmin, qmax = _integers(dtype, scheme, bits)
    low = np.minimum(np.asarray(lo, dtype=np.float64), 0.0)
    high = np.maximum(np.asarray(hi, dtype=np.float64), 0.0)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError(f"a range must be finite, got [{lo}, {hi}]")
    if scheme == "sym":
        scale, zero = _symmetric(low, high, qmin, qmax)
        scale = _floored(scale, floor)
    else:
        scale = _floored((high - low) / (qmax - qmin), floor)
        zero = np.clip(np.rint(qmin - low / scale), qmin, qmax)
    if scale.ndim == 0:
        return QuantParams(float(np.float32(scale)), int(zero), qmin, qmax, dtype, None)
    scales, zeros = scale.astype(np.float32), zero.astype(np.int32)
    return QuantParams(scales, zeros, qmin, qmax, dtype, axis or 0)


def _integers(dtype: str, scheme: str, bits: int) -> tuple[int, int]:
    if dtype not in _DTYPES:
        accepted = ", ".join(_DTYPES)
        raise ValueError(f"unknown dtype {dtype!r}{did_you_mean(dtype, _DTYPES)} ({accepted})")
    if scheme not in _SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r} (accepted: {', '.join(_SCHEMES)})")
    width, signed, _ = _DTYPES[dtype]
    if bits < 2:
        raise ValueError(f"bits must be at least 2, got {bits!r}")
    bits = min(bits, width)
    if not signed:
        return 0, (1 << bits) - 1
    half = 1 << (bits - 1)
    # A symmetric range leaves the lowest integer out, so that -x and x are equally well kept.
    return (1 - half if scheme == "sym" else -half), half - 1


def _symmetric(low: Array, high: Array, qmin: int, qmax: int) -> tuple[Array, Array]:
    peak = np.maximum(-low, high)
    if qmin < 0:
        return peak / qmax, np.zeros_like(peak)
    middle = (qmax + 1) // 2
    one_sided = low >= 0.0
    zero = np.where(one_sided, 0, middle)
    return peak / np.where(one_sided, qmax, qmax - middle), zero


def _floored(scale: Array, floor: float | Array) -> Array:
    floored: Array = np.where(scale > 0, np.maximum(scale, floor), 1.0)
    return floored


def quantize_weight(
    array: Array,
    axis: int | None = None,
    scheme: str = "sym",
    bits: int = 8,
    dtype: str = "int8",
    *,
    floor: float | Array = SCALE_FLOOR,
) -> tuple[Array, QuantParams]:
    """Integers and parameters of a constant, per channel along `axis` or for the whole tensor.

    `floor` is the least scale (one number or one per channel): raise it where an int32 bias would
    overflow. A channel of zeros takes the widest channel's scale, so that its bias keeps its grain.
    """
    weight = np.asarray(array)
    if weight.size == 0:
        raise ValueError(f"an empty weight of shape {weight.shape} can't be quantized")
    if axis is None:
        low, high = weight.min(), weight.max()
    else:
        axis = axis % weight.ndim
        others = tuple(index for index in range(weight.ndim) if index != axis)
        low, high = weight.min(axis=others), weight.max(axis=others)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError("weight holds NaN or Inf: it can't be quantized")
    if axis is not None:
        empty = (low == 0) & (high == 0)
        low = np.where(empty, np.float64(low.min()), low)
        high = np.where(empty, np.float64(high.max()), high)
    params = affine(low, high, dtype, scheme, bits, axis=axis, floor=floor)
    return quantize(weight, params), params


def quantize(array: Array, params: QuantParams) -> Array:
    """Nearest integers, half to even, saturated; NaN becomes zero."""
    # float32 is what the runtimes divide in; it can't hold all of int32, though.
    work = np.float64 if params.dtype == "int32" else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(array, dtype=work)
        scale, zero = _spread(params, values.ndim)
        scaled = np.asarray(values / np.asarray(scale, dtype=work))
        np.rint(scaled, out=scaled)
        scaled += np.asarray(zero, dtype=work)
        np.clip(scaled, params.qmin, params.qmax, out=scaled)
    invalid = np.isnan(scaled)
    if invalid.any():
        scaled = np.where(invalid, zero, scaled)
    whole: Array = scaled.astype(params.storage)
    return whole


def dequantize(q: Array, params: QuantParams) -> Array:
    """The float32 values that these integers stand for."""
    values = np.asarray(q)
    scale, zero = _spread(params, values.ndim)
    whole = values.astype(np.int32) - np.asarray(zero, dtype=np.int32)
    real: Array = (whole.astype(np.float32) * np.asarray(scale, dtype=np.float32)).astype(
        np.float32
    )
    return real


def _spread(params: QuantParams, ndim: int) -> tuple[float | Array, int | Array]:
    """Scale and zero point shaped to broadcast over a tensor of `ndim` axes."""
    if params.axis is None or not isinstance(params.scale, np.ndarray):
        return params.scale, params.zero_point
    shape = [1] * ndim
    shape[params.axis] = -1
    return params.scale.reshape(shape), np.asarray(params.zero_point).reshape(shape)


def sqnr(reference: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Signal to quantization noise in dB: inf when equal, -inf when `other` is not finite.

    >>> round(sqnr(np.array([1.0, 1.0]), np.array([1.1, 0.9])), 3)
    20.0
    """
    signal = np.asarray(reference, dtype=np.float64).reshape(-1)
    noise = np.asarray(other, dtype=np.float64).reshape(-1) - signal
    noise_power = float(noise @ noise)
    if noise_power == 0.0:
        return math.inf
    signal_power = float(signal @ signal)
    if signal_power == 0.0 or not math.isfinite(noise_power):
        return -math.inf
    return 10.0 * math.log10(signal_power / noise_power)


# -- Which weights are kept as float16 in files, for every framework: they are computed with wider.


LARGEST = float(np.finfo(np.float16).max)
FEWEST = 64  # values: less than that saves nothing
COARSE = 1e-3  # relative error of the whole: rounding alone gives 3e-4, values near zero much more


def halved(array: npt.NDArray[Any] | None) -> npt.NDArray[np.float16] | None:
    """The values as float16; None where that saves nothing, or loses more than rounding does.

    >>> halved(np.full((8, 8), 0.1, np.float32)).dtype
    dtype('float16')
    >>> halved(np.full((8, 8), 1e6, np.float32)), halved(np.full((8, 8), 1e-7, np.float32))
    (None, None)
    """
    if array is None or array.dtype != np.float32 or array.size < FEWEST:
        return None
    if not np.abs(array).max() <= LARGEST:  # nor where one is no number
        return None
    found: npt.NDArray[np.float16] = array.astype(np.float16)
    wide = array.astype(np.float64)
    lost, whole = np.square(found - wide).sum(), np.square(wide).sum()
    return found if lost <= COARSE**2 * whole else None
