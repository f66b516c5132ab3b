"""One range-free histogram answers for minmax, percentile, KL and MSE."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.rounding import affine, dequantize, quantize
from lpot.core.numerics.threshold import ALGORITHMS, KL_COVERAGE

RNG_SEED = 7
ANY_FLOAT = st.floats(width=32, allow_nan=True, allow_infinity=True)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VALUES = hnp.arrays(np.float32, st.integers(0, 40), elements=ANY_FLOAT)


def stats_of(*arrays: np.ndarray) -> TensorStats:
    stats = TensorStats.empty()
    for array in arrays:
        stats.update(array)
    return stats


def gelu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-1.702 * x))


def shapes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(RNG_SEED)
    normal = rng.normal(size=50_000)
    return {
        "normal": normal,
        "relu": np.maximum(normal, 0),
        "laplace": rng.laplace(size=50_000),
        "heavy": rng.standard_t(3, size=50_000),
        "outliers": np.append(normal, 15 + 3 * rng.normal(size=20)),
        "gelu": gelu(2 * normal),
        "positive": rng.uniform(5, 6, size=50_000),
        "negative": -rng.exponential(size=50_000) - 1,
        "tiny": normal * 1e-30,
        "huge": normal * 1e30,
    }


SHAPES = shapes()


@given(values=VALUES)
def test_counts_and_extremes_are_exact(values: np.ndarray) -> None:
    stats = stats_of(values)
    finite = values[np.isfinite(values)]
    assert stats.count == finite.size
    assert stats.nan == np.isnan(values).sum()
    assert stats.inf == np.isinf(values).sum()
    assert stats.minimum == (finite.min() if finite.size else 0.0)
    assert stats.maximum == (finite.max() if finite.size else 0.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("symmetric", [False, True])
@given(values=VALUES, bits=st.sampled_from([4, 7, 8]))
def test_range_holds_zero_and_lies_in_the_extremes(
    algorithm: str, symmetric: bool, values: np.ndarray, bits: int
) -> None:
    stats = stats_of(values)
    lo, hi = stats.range(algorithm, symmetric=symmetric, bits=bits)
    assert math.isfinite(lo) and math.isfinite(hi)
    assert lo <= 0.0 <= hi
    bottom, top = min(stats.minimum, 0.0), max(stats.maximum, 0.0)
    if symmetric:
        assert lo == -hi
        bottom, top = -max(-bottom, top), max(-bottom, top)
    slack = 1 + 1e-6
    assert bottom * slack <= lo and hi <= top * slack
    affine(lo, hi)


@given(first=VALUES, second=VALUES)
def test_merge_equals_one_pass(first: np.ndarray, second: np.ndarray) -> None:
    merged = stats_of(first).merge(stats_of(second))
    single = stats_of(np.concatenate([first, second]))
    assert (merged.count, merged.nan, merged.inf) == (single.count, single.nan, single.inf)
    for algorithm in ALGORITHMS:
        assert merged.range(algorithm) == single.range(algorithm)


@given(values=hnp.arrays(np.float32, st.integers(1, 30), elements=st.floats(-100, 100, width=32)))
def test_scaling_by_two_scales_the_range(values: np.ndarray) -> None:
    """Range-free: no absolute number is hidden anywhere."""
    values = values[(values == 0) | (np.abs(values) > 1e-30)]
    plain, doubled = stats_of(values), stats_of(values * np.float32(2))
    for algorithm in ALGORITHMS:
        expected = np.array(plain.range(algorithm)) * 2
        np.testing.assert_allclose(doubled.range(algorithm), expected, rtol=1e-5)


@given(values=VALUES)
def test_pack_and_unpack_keep_everything(values: np.ndarray) -> None:
    stats = stats_of(values)
    twin = TensorStats.unpack(stats.pack())
    assert (twin.count, twin.nan, twin.inf) == (stats.count, stats.nan, stats.inf)
    for algorithm in ALGORITHMS:
        assert twin.range(algorithm) == stats.range(algorithm)


def test_copy_and_merge_leave_the_source_alone() -> None:
    stats = stats_of(np.ones(4, np.float32))
    twin = stats.copy()
    twin.update(np.full(4, 9, np.float32))
    stats.merge(twin)
    assert (stats.count, stats.maximum) == (4, 1.0)
    assert (twin.count, twin.maximum) == (8, 9.0)


def test_update_forgets_cached_ranges() -> None:
    stats = stats_of(np.ones(4, np.float32))
    assert stats.range("mse") is stats.range("mse")
    assert stats.range()[1] == 1.0
    stats.update(np.array([5.0], np.float32))
    assert stats.range()[1] == 5.0


def test_subsample_with_exact_extremes() -> None:
    stats = TensorStats.empty()
    stats.update(np.array([1.0, 2.0]), minimum=-3.0, maximum=8.0)
    assert stats.range("minmax") == (-3.0, 8.0)
    assert stats.count == 2


def test_special_extremes_are_reported_though_the_subsample_missed_them() -> None:
    stats = TensorStats.empty()
    stats.update(np.array([1.0]), minimum=math.nan, maximum=math.nan)
    assert (stats.nan, stats.inf, stats.range()) == (1, 0, (0.0, 1.0))
    stats.update(np.array([1.0]), minimum=0.5, maximum=math.inf)
    assert (stats.nan, stats.inf, stats.range()) == (1, 1, (0.0, 1.0))


def test_nan_with_a_small_payload_is_not_taken_for_infinity() -> None:
    quiet = np.array([0x7F800001, 0xFF800001, 0x7F800000], dtype=np.uint32).view(np.float32)
    stats = stats_of(quiet)
    assert (stats.nan, stats.inf, stats.count) == (2, 1, 0)


@pytest.mark.parametrize("values", [[], [0.0], [-0.0, 0.0], [np.nan], [np.inf, -np.inf]])
def test_nothing_to_see_gives_an_empty_range(values: list[float]) -> None:
    stats = stats_of(np.array(values, dtype=np.float32))
    for algorithm in ALGORITHMS:
        for symmetric in (False, True):
            lo, hi = stats.range(algorithm, symmetric=symmetric)
            assert (lo, hi) == (0.0, 0.0)
    assert stats.error(0.0, 0.0, 256) == 0.0
    assert stats.power == 0.0
    assert affine(*stats.range()).scale == 1.0


@pytest.mark.parametrize("value", [3.0, -3.0, 1e-42, 1e38, 1e-20])
def test_constant_tensor_is_kept_whole(value: float) -> None:
    stats = stats_of(np.full(100, value, dtype=np.float32))
    exact = float(np.float32(value))
    for algorithm in ALGORITHMS:
        assert stats.range(algorithm) == (min(exact, 0.0), max(exact, 0.0))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.uint8, np.bool_])
def test_other_dtypes_are_taken(dtype: type) -> None:
    stats = stats_of(np.array([[0, 1], [1, 0]]).astype(dtype))
    assert (stats.count, stats.range()) == (4, (0.0, 1.0))


def test_float64_beyond_float32_counts_as_infinite() -> None:
    assert stats_of(np.array([1e300, 1.0])).inf == 1


def test_strided_input_and_counts_beyond_32_bits() -> None:
    stats = stats_of(np.arange(12, dtype=np.float32).reshape(3, 4).T[::2])
    assert stats.count == 6
    for _ in range(33):
        stats = stats.merge(stats)
    assert stats.count == 6 * 2**33


def test_unknown_algorithm_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'minmax'"):
        stats_of(np.ones(2)).range("minmx")


@pytest.mark.parametrize("name", SHAPES)
def test_percentile_is_that_of_the_sorted_values(name: str) -> None:
    values = SHAPES[name].astype(np.float32)
    lo, hi = stats_of(values).range("percentile", percentile=99.0)
    low, high = np.percentile(values, [0.5, 99.5])
    # One bin is at most 1/128 wide.
    np.testing.assert_allclose([lo, hi], [min(low, 0), max(high, 0)], rtol=0.01)
    span = stats_of(values).range("percentile", symmetric=True, percentile=99.0)[1]
    assert span == pytest.approx(np.percentile(np.abs(values), 99.0), rel=0.01)


@pytest.mark.parametrize("percentile", [0.0, -1.0, 100.1])
def test_percentile_out_of_bounds(percentile: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        stats_of(np.ones(2)).range("percentile", percentile=percentile)


def true_error(values: np.ndarray, lo: float, hi: float, bits: int = 8) -> float:
    params = affine(lo, hi, "uint8", "asym", bits)
    back = dequantize(quantize(values, params), params).astype(np.float64)
    return float(np.mean((back - values) ** 2))


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("tiny", "huge")])
@pytest.mark.parametrize("bits", [4, 8])
def test_error_matches_quantizing_the_values(name: str, bits: int) -> None:
    values = SHAPES[name].astype(np.float32)
    stats = stats_of(values)
    for part in (1.0, 0.6, 0.3):
        lo, hi = (part * edge for edge in stats.range())
        truth = true_error(values, lo, hi, bits)
        assert stats.error(lo, hi, 1 << bits) == pytest.approx(truth, rel=0.06)


@pytest.mark.parametrize("name", SHAPES)
def test_power(name: str) -> None:
    values = SHAPES[name].astype(np.float32).astype(np.float64)
    assert stats_of(values).power == pytest.approx(np.mean(values**2), rel=0.01)


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in ("tiny", "huge")])
@pytest.mark.parametrize("bits", [4, 8])
def test_mse_is_near_the_best_of_a_grid(name: str, bits: int) -> None:
    values = SHAPES[name].astype(np.float32)
    stats = stats_of(values)
    chosen = true_error(values, *stats.range("mse", bits=bits), bits)
    lo, hi = stats.range()
    grid = np.linspace(0.1, 1.0, 16)
    best = min(true_error(values, lo * a, hi * b, bits) for a in grid for b in grid)
    assert chosen <= 1.08 * best


def reference_kl(values: np.ndarray, levels: int, bins: int = 4096) -> float:
    """The usual search on a linear histogram of |x|, written out bin by bin."""
    magnitude = np.abs(values[values != 0])
    top = float(magnitude.max())
    counts = np.histogram(magnitude, bins=bins, range=(0, top))[0].astype(float)
    scores = []
    for size in range(levels, bins + 1, 16):
        kept = counts[:size]
        if kept.sum() < KL_COVERAGE * counts.sum():
            continue
        truth = kept.copy()
        truth[-1] += counts[size:].sum()
        level = np.arange(size) * levels // size
        filled = np.bincount(level, kept > 0, levels)
        mean = np.bincount(level, kept, levels) / np.maximum(filled, 1)
        flat = np.where(kept > 0, mean[level], 0.0)
        truth, flat = truth / truth.sum(), flat / flat.sum()
        seen = truth > 0
        flat = np.maximum(flat, 1e-4 / size)
        scores.append((float(np.sum(truth[seen] * np.log(truth[seen] / flat[seen]))), size))
    return top * min(scores)[1] / bins


@pytest.mark.parametrize("name", ["normal", "relu", "laplace", "gelu", "positive", "negative"])
def test_kl_agrees_with_a_linear_reference(name: str) -> None:
    values = SHAPES[name].astype(np.float32)
    reference = reference_kl(values, 128)
    chosen = stats_of(values).range("kl", symmetric=True)[1]
    assert chosen == pytest.approx(reference, rel=0.15)
    if values.min() >= 0 or values.max() <= 0:
        lo, hi = stats_of(values).range("kl")
        assert max(-lo, hi) == pytest.approx(reference_kl(values, 256), rel=0.15)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("symmetric", [False, True])
def test_kl_covers_the_mass(name: str, symmetric: bool) -> None:
    values = SHAPES[name].astype(np.float32)
    lo, hi = stats_of(values).range("kl", symmetric=symmetric)
    inside = np.mean((values >= lo) & (values <= hi))
    assert inside >= KL_COVERAGE - 1e-3


def test_kl_and_percentile_drop_a_lone_outlier() -> None:
    values = np.append(np.random.default_rng(1).normal(size=50_000), 1e4)
    stats = stats_of(values)
    assert stats.range("minmax")[1] == 1e4
    for algorithm in ("kl", "percentile"):
        lo, hi = stats.range(algorithm)
        assert -6 < lo < -3 < 3 < hi < 6


def test_sixteen_bits_are_served() -> None:
    stats = stats_of(SHAPES["normal"])
    for algorithm in ALGORITHMS:
        lo, hi = stats.range(algorithm, bits=16)
        assert lo < -3 and hi > 3


def test_repr_says_what_was_seen() -> None:
    assert repr(stats_of(np.array([1.0, np.nan]))) == (
        "TensorStats(count=1, minimum=1, maximum=1, nan=1, inf=0)"
    )
