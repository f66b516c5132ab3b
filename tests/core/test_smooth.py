"""Factors for outlier channels: powers of two, nearer than none, and none where all is well."""

from __future__ import annotations

import numpy as np
import pytest

from lpot.core.numerics.observations import Extremes
from lpot.core.ptq.smoothquant import best_factors


def drawn(seed: int, torn: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """An input with some channels 60 times as large, and a weight that reads them as if not."""
    draw = np.random.default_rng(seed)
    x, weight = draw.standard_normal((500, 64)), draw.standard_normal((32, 64))
    x[:, torn] *= 60.0
    weight[:, torn] /= 60.0
    return x, weight


def seen(x: np.ndarray) -> tuple[Extremes, np.ndarray]:
    return Extremes(x.min(axis=0), x.max(axis=0)), (x**2).mean(axis=0)


def noise(x: np.ndarray, weight: np.ndarray, factors: np.ndarray) -> float:
    """What rounding both sides really does to the product."""
    given, scaled = x / factors, weight * factors
    step = (given.max() - given.min()) / 255.0
    width = np.abs(scaled).max(axis=1, keepdims=True) / 127.0
    found = (np.rint(given / step) * step) @ (np.rint(scaled / width) * width).T
    truth = x @ weight.T
    return float(((found - truth) ** 2).mean() / (truth**2).mean())


@pytest.mark.parametrize("seed", range(3))
def test_torn_channels_are_evened_out(seed: int) -> None:
    x, weight = drawn(seed, (3, 17, 40))
    choice = best_factors(*seen(x), weight)
    assert np.array_equal(np.log2(choice.factors) % 1.0, np.zeros(64))
    plain = noise(x, weight, np.ones(64))
    assert noise(x, weight, choice.factors) < 0.02 * plain
    assert choice.before == pytest.approx(plain, rel=0.5)
    assert choice.after == pytest.approx(noise(x, weight, choice.factors), rel=0.5)


def test_even_channels_gain_next_to_nothing() -> None:
    x, weight = drawn(0, ())
    choice = best_factors(*seen(x), weight)
    assert choice.after > 0.6 * choice.before


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30])
def test_dead_and_extreme_inputs_make_no_trouble(value: float) -> None:
    x, weight = np.full((4, 8), value), np.ones((3, 8))
    for given in (weight, weight * 0.0):
        choice = best_factors(*seen(x), given)
        assert np.isfinite(choice.factors).all() and (choice.factors > 0.0).all()
        assert choice.after <= choice.before
