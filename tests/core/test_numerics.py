"""Scales, zero points and rounding keep their promises on every float32 there is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lpot.core.numerics.rounding import (
    SCALE_FLOOR,
    affine,
    dequantize,
    quantize,
    quantize_weight,
    sqnr,
)

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
FORMS = [("uint8", "asym"), ("uint8", "sym"), ("int8", "asym"), ("int8", "sym"), ("int4", "sym")]
WEIGHTS = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=4, max_side=6), elements=FINITE
)


@pytest.mark.parametrize(("dtype", "scheme"), FORMS)
@given(a=FINITE, b=FINITE)
def test_zero_is_exact_and_scale_lives(dtype: str, scheme: str, a: float, b: float) -> None:
    params = affine(min(a, b), max(a, b), dtype, scheme)
    assert params.qmin <= params.zero_point <= params.qmax
    assert math.isfinite(params.scale) and params.scale >= SCALE_FLOOR
    zero = np.zeros(1, dtype=np.float32)
    assert dequantize(quantize(zero, params), params)[0] == 0.0


@given(a=FINITE, b=FINITE, x=FINITE)
def test_error_is_at_most_one_step_inside_the_range(a: float, b: float, x: float) -> None:
    lo, hi = min(a, b, 0.0), max(a, b, 0.0)
    params = affine(lo, hi)
    inside = np.array([min(max(x, lo), hi)], dtype=np.float32)
    back = dequantize(quantize(inside, params), params)
    # Half a step of rounding, half a step because the zero point is rounded.
    assert abs(float(back[0]) - float(inside[0])) <= params.scale * 1.01


@pytest.mark.parametrize(
    ("dtype", "scheme", "bits", "expected"),
    [
        ("uint8", "asym", 8, (0, 255)),
        ("uint8", "asym", 7, (0, 127)),
        ("int8", "sym", 8, (-127, 127)),
        ("int8", "sym", 7, (-63, 63)),
        ("int8", "asym", 8, (-128, 127)),
        ("int8", "sym", 4, (-7, 7)),
        ("int4", "asym", 8, (-8, 7)),
        ("uint16", "asym", 16, (0, 65535)),
    ],
)
def test_integers_used(dtype: str, scheme: str, bits: int, expected: tuple[int, int]) -> None:
    params = affine(-1.0, 2.0, dtype, scheme, bits)
    assert (params.qmin, params.qmax) == expected


def test_unsigned_symmetric_puts_zero_at_the_bottom_or_in_the_middle() -> None:
    assert affine(0.0, 2.0, "uint8", "sym").zero_point == 0
    assert affine(-1.0, 2.0, "uint8", "sym").zero_point == 128


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("uint9", "asym", 8), "did you mean 'uint8'"),
        (("uint8", "symmetric", 8), "asym, sym"),
        (("uint8", "asym", 1), "at least 2"),
    ],
)
def test_wrong_words_are_named(arguments: tuple[str, str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        affine(-1.0, 1.0, *arguments)


def test_endless_range_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        affine(0.0, math.inf)


@given(weight=WEIGHTS)
def test_weight_channels_are_kept_within_half_a_step(weight: np.ndarray) -> None:
    q, params = quantize_weight(weight, axis=0)
    assert q.dtype == np.int8 and q.shape == weight.shape
    assert np.abs(q.astype(int)).max() <= 127
    scale = np.asarray(params.scale, dtype=np.float64).reshape([-1] + [1] * (weight.ndim - 1))
    back = (q * scale).astype(np.float64)
    # Below the floor everything is zero, and off by less than half of the floor.
    assert (np.abs(back - weight) <= scale * 0.5001).all()


@given(weight=WEIGHTS, axis=st.integers(0, 1))
def test_per_channel_is_never_worse_than_the_tensor(weight: np.ndarray, axis: int) -> None:
    _, channel = quantize_weight(weight, axis=axis)
    _, tensor = quantize_weight(weight, axis=None)
    if np.any(weight):
        assert np.max(channel.scale) <= np.float32(tensor.scale) * (1 + 1e-6)


def test_hard_channels_are_safe() -> None:
    weight = np.array([[0, 0], [3, 3], [1e-42, -1e-42], [1e30, 1], [1, -2]], dtype=np.float32)
    q, params = quantize_weight(weight, axis=0)
    assert np.isfinite(params.scale).all() and (params.scale >= SCALE_FLOOR).all()
    assert q[0].tolist() == [0, 0]
    assert params.scale[0] == params.scale.max(), "zeros take the widest channel's scale"
    assert q[1].tolist() == [127, 127]
    assert q[2].tolist() == [0, 0]
    assert q[4].tolist() == [64, -127]


def test_all_zero_weight_has_unit_scale() -> None:
    q, params = quantize_weight(np.zeros((2, 3), np.float32), axis=0)
    assert not q.any() and params.scale.tolist() == [1.0, 1.0]


def test_floor_per_channel() -> None:
    weight = np.array([[1e-6, 1e-6], [1.0, 1.0]], dtype=np.float32)
    _, params = quantize_weight(weight, axis=0, floor=np.array([1e-3, 1e-3]))
    assert params.scale[0] == np.float32(1e-3) and params.scale[1] == np.float32(1 / 127)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_special_weights_are_refused(bad: float, axis: int | None) -> None:
    with pytest.raises(ValueError, match="NaN or Inf"):
        quantize_weight(np.array([[1.0, bad]], dtype=np.float32), axis=axis)


def test_empty_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        quantize_weight(np.zeros((0, 3), np.float32), axis=0)


def test_negative_axis_counts_from_the_end() -> None:
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    q, params = quantize_weight(weight, axis=-1)
    assert params.axis == 1 and np.shape(params.scale) == (3,)
    assert sqnr(weight, dequantize(q, params)) > 40


def test_quantize_rounds_half_to_even_saturates_and_puts_nan_on_zero() -> None:
    params = affine(-128.0, 127.0)
    assert params.scale == 1.0
    values = np.array([0.5, 1.5, 1e9, -1e9, np.inf, -np.inf, np.nan], dtype=np.float32)
    assert quantize(values, params).tolist() == [128, 130, 255, 0, 255, 0, 128]


def test_int32_saturates() -> None:
    params = affine(-1.0, 1.0, "int32", "sym", bits=32)
    assert quantize(np.array([5.0, -5.0]), params).tolist() == [2**31 - 1, 1 - 2**31]


def test_float16_weights_do_not_overflow() -> None:
    weight = np.array([[60000.0, 1e-4]], dtype=np.float16)
    q, _ = quantize_weight(weight, axis=None)
    assert q.tolist() == [[127, 0]]


def test_sqnr() -> None:
    x = np.linspace(-1, 1, 1001)
    assert sqnr(x, x) == math.inf
    assert sqnr(np.zeros(3), np.ones(3)) == -math.inf
    assert sqnr(x, np.full_like(x, np.nan)) == -math.inf
    assert sqnr(x, x * 1.01) == pytest.approx(40.0)


def test_eight_bits_of_a_uniform_signal_give_50_db() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, 100_000).astype(np.float32)
    params = affine(-1.0, 1.0)
    assert sqnr(x, dequantize(quantize(x, params), params)) == pytest.approx(48.1, abs=0.3)
