"""Rounding of weights against naive references, and the layouts against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from lpot.core.weight_only.awq import scaled
from lpot.core.weight_only.gptq import Settings, factored, gptq, inverse_factor
from lpot.core.weight_only.grid import BITS, GROUPS, Format, Rounded, encode, fit
from lpot.core.weight_only.learned import DAMPING, learned, refitted
from lpot.core.weight_only.nearest import round_to_nearest
from lpot.core.weight_only.pack import (
    pack_bits,
    pack_gptq,
    pack_matmul_nbits,
    unpack_bits,
    unpack_gptq,
    unpack_matmul_nbits,
)


def _weight(rows: int = 24, columns: int = 96, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(4, (rows, columns)).astype(np.float32)


def _inputs(columns: int, count: int = 512, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((columns, columns)) * np.exp(rng.standard_normal(columns))
    return (rng.standard_normal((count, columns)) @ mix).astype(np.float32)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group", (0, 32, 128))
@pytest.mark.parametrize("symmetric", (True, False))
def test_every_weight_gets_the_nearest_code_of_its_group(
    bits: int, group: int, symmetric: bool
) -> None:
    weight, fmt = _weight(), Format(bits, group, symmetric)
    rounded = round_to_nearest(weight, fmt)
    width = fmt.width(weight.shape[1])
    assert rounded.scales.shape == (24, fmt.groups(96))
    for row in range(24):
        for column in range(96):
            scale = rounded.scales[row, column // width]
            zero = fmt.middle if rounded.zeros is None else rounded.zeros[row, column // width]
            ladder = (np.arange(fmt.top + 1) - float(zero)) * scale
            found = ladder[rounded.codes[row, column]]
            assert (
                abs(found - weight[row, column])
                <= np.abs(ladder - weight[row, column]).min() + 1e-5
            )


def test_clipping_never_makes_the_weighted_error_larger() -> None:
    weight = _weight(8, 64)
    energy = np.square(_inputs(64)).mean(0)
    fmt = Format(4, 32)
    plain = np.abs(weight.reshape(8, 2, 32)).max(-1) / 8
    codes = encode(weight.reshape(8, 2, 32), plain[..., None], fmt.middle, fmt)
    before = np.square((codes - 8) * plain[..., None] - weight.reshape(8, 2, 32))
    after = np.square(round_to_nearest(weight, fmt, energy).values() - weight)
    assert (after * energy).sum() < (before.reshape(8, 64) * energy).sum()


def _naive_gptq(weight: np.ndarray, hessian: np.ndarray, fmt: Format) -> np.ndarray:
    """The paper's loop without blocks or factors: the inverse is updated column by column."""
    left = weight.astype(np.float64).copy()
    columns = weight.shape[1]
    damped = hessian.astype(np.float64) + 0.01 * np.diag(hessian).mean() * np.eye(columns)
    inverse = np.linalg.inv(damped)
    energy = np.diag(hessian).astype(np.float32).reshape(-1, fmt.group_size)
    made = np.empty_like(left)
    for at in range(columns):
        if at % fmt.group_size == 0:
            now = left[:, None, at : at + fmt.group_size].astype(np.float32)
            group = at // fmt.group_size
            scales, zeros = fit(now, fmt, energy[group : group + 1])
            zero = fmt.middle if zeros is None else zeros[:, 0].astype(np.float64)
        code = encode(left[:, at], scales[:, 0], zero, fmt)
        made[:, at] = (code - zero) * scales[:, 0]
        error = (left[:, at] - made[:, at]) / inverse[at, at]
        left[:, at:] -= np.outer(error, inverse[at, at:])
        inverse -= np.outer(inverse[:, at], inverse[at]) / inverse[at, at]
    return made


@pytest.mark.parametrize("symmetric", (True, False))
def test_gptq_in_blocks_is_the_papers_loop(symmetric: bool) -> None:
    weight, x = _weight(12, 64), _inputs(64)
    hessian = x.T @ x / len(x)
    fmt = Format(4, 32, symmetric)
    ours = gptq(weight, hessian, fmt, Settings(act_order=False, block=24)).values()
    naive = _naive_gptq(weight, hessian, fmt)
    assert np.mean(np.isclose(ours, naive, atol=1e-4)) > 0.99  # a tie may fall either way


@pytest.mark.parametrize("act_order", (True, False))
@pytest.mark.parametrize("bits", BITS)
def test_gptq_is_nearer_in_its_outputs_than_rounding(bits: int, act_order: bool) -> None:
    weight, x = _weight(16, 96), _inputs(96)
    hessian, fmt = x.T @ x / len(x), Format(bits, 32)
    energy = np.diag(hessian).copy()

    def loss(rounded: Rounded) -> float:
        return float(np.square(x @ (rounded.values() - weight).T).sum())

    clever = gptq(weight, hessian, fmt, Settings(act_order=act_order))
    assert loss(clever) < loss(round_to_nearest(weight, fmt, energy))


def test_gptq_does_the_same_in_chunks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = _weight(10, 64), _inputs(64)
    whole = gptq(weight, x.T @ x, Format(4, 32))
    monkeypatch.setattr("lpot.core.weight_only.gptq.ROWS", 3)
    parts = gptq(weight, x.T @ x, Format(4, 32))
    assert np.array_equal(whole.codes, parts.codes)


def test_gptq_takes_inputs_that_were_never_active_and_hessians_without_rank() -> None:
    weight = _weight(6, 64)
    x = np.zeros((3, 64), np.float32)
    x[:, 5] = 1
    values = gptq(weight, x.T @ x, Format(4, 32)).values()
    assert np.isfinite(values).all()
    broken = gptq(weight, np.full((64, 64), np.nan), Format(4, 32)).values()
    assert np.isfinite(broken).all()
    with pytest.raises(ValueError, match="does not match 64 columns"):
        gptq(weight, np.eye(32), Format(4, 32))


@pytest.mark.parametrize("columns", (7, 64, 150))
def test_the_factor_is_that_of_the_inverse(columns: int) -> None:
    x = np.random.default_rng(0).standard_normal((300, columns))
    hessian = x.T @ x / 300
    order = np.random.default_rng(1).permutation(columns)
    factor = inverse_factor(hessian, order, 0.01)
    damped = hessian[np.ix_(order, order)]
    damped[np.diag_indices(columns)] += 0.01 * np.diagonal(hessian).mean()
    assert not np.tril(factor, -1).any()
    np.testing.assert_allclose(factor.T @ factor, np.linalg.inv(damped), atol=1e-5)
    weight = _weight(5, columns)
    once = gptq(weight, factored(hessian), Format(4, 32))
    assert np.array_equal(once.codes, gptq(weight, hessian, Format(4, 32)).codes)


@pytest.mark.parametrize("columns", (40, 33, 64))
def test_a_group_that_does_not_divide_the_row_is_cut_short(columns: int) -> None:
    weight, fmt = _weight(5, columns), Format(4, 32, symmetric=False)
    rounded = round_to_nearest(weight, fmt)
    again = unpack_matmul_nbits(*pack_matmul_nbits(rounded), fmt, columns)
    assert rounded.codes.shape == (5, columns)
    assert np.array_equal(again.values(), rounded.values())
    assert np.abs(rounded.values() - weight).max() < np.abs(weight).max()
    x = _inputs(columns)
    assert gptq(weight, x.T @ x, fmt).codes.shape == (5, columns)


def test_zeros_constants_and_denormals_stay_what_they_are() -> None:
    weight = np.zeros((4, 64), np.float32)
    weight[1], weight[2], weight[3] = 0.25, -3.0, 1e-42
    for symmetric in (True, False):
        values = round_to_nearest(weight, Format(4, 32, symmetric)).values()
        assert np.abs(values - weight).max() <= 0.05 * 3
        assert not values[0].any() and np.isfinite(values).all()


@pytest.mark.parametrize("bits", (2, 4, 8))
def test_bits_are_packed_with_the_first_code_lowest(bits: int) -> None:
    codes = np.random.default_rng(0).integers(0, 1 << bits, (3, 13)).astype(np.uint8)
    assert np.array_equal(unpack_bits(pack_bits(codes, bits), bits, 13), codes)
    assert pack_bits(codes, bits)[0, 0] & ((1 << bits) - 1) == codes[0, 0]


@pytest.mark.parametrize("bits", (2, 4, 8))
@pytest.mark.parametrize("symmetric", (True, False))
def test_gptq_files_hold_what_was_rounded(bits: int, symmetric: bool) -> None:
    fmt = Format(bits, 32, symmetric)
    rounded = round_to_nearest(_weight(16, 64), fmt)
    tensors = pack_gptq(rounded)
    assert tensors["qweight"].shape == (64 * bits // 32, 16)
    assert tensors["qzeros"].shape == (2, 16 * bits // 32)
    assert np.array_equal(unpack_gptq(tensors, fmt, 64).values(), rounded.values())


def test_awq_helps_where_few_channels_carry_the_energy() -> None:
    weight = _weight(16, 64)
    energy = np.full(64, 0.01, np.float32)
    energy[::16] = 100.0
    fmt = Format(3, 32)
    scales, rounded = scaled(weight, energy, fmt)
    error = float((np.square(rounded.values() / scales - weight) * energy).sum())
    plain = round_to_nearest(weight, fmt, energy).values() - weight
    assert error < 0.8 * float((np.square(plain) * energy).sum())
    assert scales[0] > scales[1]


@pytest.mark.parametrize("bits, group", ((5, 32), (4, 48), (4, 512)))
def test_formats_that_nothing_reads_are_refused(bits: int, group: int) -> None:
    with pytest.raises(ValueError, match=r"expected (0 or )?one of"):
        Format(bits, group)
    assert max(GROUPS) == 256


def _lost(weight: np.ndarray, rounded: Rounded, hessian: np.ndarray) -> np.ndarray:
    """Of each row, with the Hessian damped as it is while learning."""
    damped = hessian + DAMPING * np.diag(hessian).mean() * np.eye(len(hessian))
    off = (rounded.values() - weight).astype(np.float64)
    return np.asarray(np.einsum("nk,nk->n", off @ damped, off))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group", (0, 32, 64))  # 64 leaves half a group at the end
@pytest.mark.parametrize("symmetric", (True, False))
def test_learned_rounding_is_never_worse_than_what_it_began_with(
    bits: int, group: int, symmetric: bool
) -> None:
    weight, x = _weight(), _inputs(96)
    hessian = x.T @ x / len(x)
    for start in (
        gptq(weight, hessian, Format(bits, group, symmetric)),
        round_to_nearest(weight, Format(bits, group, symmetric)),
    ):
        before = _lost(weight, start, hessian)
        scales = _lost(weight, refitted(weight, hessian, start), hessian)
        found = learned(weight, hessian, start)
        after = _lost(weight, found, hessian)
        slack = 1e-4 * before + 1e-9
        assert (scales <= before + slack).all() and (after <= scales + slack).all()
        most = 0.95 if group == 32 and bits < 8 else 1.0  # groups of 32 leave it more to learn
        assert after.sum() < most * before.sum()
        assert found.format == start.format and found.codes.max() <= start.format.top
        assert (found.zeros is None) == symmetric


def test_no_other_code_and_no_other_scale_is_better_in_the_end() -> None:
    """At the end of many sweeps each unknown is at the best value that the others leave it."""
    weight, x = _weight(3, 32), _inputs(32)
    hessian = x.T @ x / len(x)
    start = gptq(weight, hessian, Format(4, 16))
    found = learned(weight, hessian, start, sweeps=50)
    least = _lost(weight, found, hessian)
    for column in range(32):
        for step in (-1, 1):
            codes = found.codes.astype(np.int64)
            codes[:, column] = np.clip(codes[:, column] + step, 0, 15)
            other = Rounded(found.format, codes.astype(np.uint8), found.scales, None)
            assert (_lost(weight, other, hessian) >= least * (1 - 1e-4)).all()
    for group in range(2):
        for factor in (0.98, 1.02):
            scales = found.scales.copy()
            scales[:, group] *= factor
            other = Rounded(found.format, found.codes, scales, None)
            assert (_lost(weight, other, hessian) >= least * (1 - 1e-4)).all()


def test_what_was_learned_holds_on_other_inputs() -> None:
    weight = _weight(64, 96)
    every = _inputs(96, 8192)
    seen, unseen = every[:4096], every[4096:]
    start = gptq(weight, seen.T @ seen / 4096, Format(4, 32))
    found = learned(weight, seen.T @ seen / 4096, start)
    before, after = (
        np.square(unseen @ (each.values() - weight).T).sum() for each in (start, found)
    )
    assert after < 0.9 * before


def test_learning_survives_inputs_that_were_never_active_or_overflowed() -> None:
    weight, x = _weight(4, 64), _inputs(64)
    x[:, :40] = 0
    hessian = x.T @ x / len(x)
    start = gptq(weight, hessian, Format(4, 32))
    assert np.isfinite(learned(weight, hessian, start).values()).all()
    assert learned(weight, np.full((64, 64), np.inf), start) is start
    faint = weight * np.float32(1e-29)
    for curve in (hessian, hessian * np.float32(1e-25)):
        found = learned(faint, curve, gptq(faint, curve, Format(4, 32)))
        assert np.isfinite(found.values()).all() and np.abs(found.values()).max() < 1e-27
    nothing = np.zeros((4, 64), np.float32)
    assert not learned(nothing, hessian, gptq(nothing, hessian, Format(4, 32))).values().any()
