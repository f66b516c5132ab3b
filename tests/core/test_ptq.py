"""Sensitivity, advice and gains as every backend gets them, on a framework of plain numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import Observations
from lpot.core.ptq import gains
from lpot.core.ptq.advice import advise
from lpot.core.ptq.distance import distance
from lpot.core.ptq.equalize import channel_scales
from lpot.core.ptq.sensitivity import alone, leaders, sensitivity
from lpot.core.ptq.smoothquant import LIMIT, smooth_factors
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import Capability, restrict
from toy_backend import ToyBackend, ToyModel, make_net

BACKEND = ToyBackend()
BATCH = (np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32),)
KEYS = [OpKey(f"dense{n}", "Dense") for n in range(3)]


def prepared() -> tuple[ToyModel, Recipe, Observations]:
    model = BACKEND.load(make_net(8, 16, 16, 4))
    recipe = restrict(BACKEND.inspect(model), ()).default()
    return model, recipe, BACKEND.observe(model, [BATCH])[0]


def test_sensitivity_is_of_one_op_alone() -> None:
    model, recipe, seen = prepared()
    assert alone(recipe, KEYS[1]).low_ops == (KEYS[1],)
    truth = BACKEND.run(model, BATCH)
    found = sensitivity(BACKEND, model, recipe, seen)
    for key in KEYS:
        low = BACKEND.build(model, recipe.with_float(other for other in KEYS if other != key), seen)
        assert found[key] == distance(truth, BACKEND.run(low, BATCH)) > 0.0


def test_followers_are_not_ranked() -> None:
    class Following(ToyBackend):
        def inspect(self, model: ToyModel, *words: str) -> Capability:  # type: ignore[override]
            ops = dict(super().inspect(model).ops)
            return Capability({**ops, KEYS[1]: replace(ops[KEYS[1]], follower=True)})

    model, recipe, _ = prepared()
    assert leaders(Following(), model, recipe) == [KEYS[0], KEYS[2]]


def stats(*parts: np.ndarray) -> TensorStats:
    found = TensorStats.empty()
    for part in parts:
        found.update(part.astype(np.float32))
    return found


EVEN = stats(np.random.default_rng(1).uniform(-1, 1, 4096))
LONG_TAILED = stats(*[np.random.default_rng(1).standard_normal(1 << 16)] * 128, np.array([90.0]))
UNEVEN = stats(np.repeat([0.01, 1.0, 3.0], [3000, 500, 500]) * np.tile([1, -1], 2000))


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        ({}, []),
        ({KEYS[0]: EVEN}, []),
        ({KEYS[0]: LONG_TAILED}, ["static other range", "dynamic"]),
        ({KEYS[1]: UNEVEN}, ["dynamic"]),
    ],
)
def test_advice_is_given_where_statistics_ask_for_it(
    inputs: dict[OpKey, TensorStats], wanted: Sequence[str]
) -> None:
    model, recipe, _ = prepared()
    found = []
    for other in advise(recipe, inputs, BACKEND.inspect(model, "auto")):
        (key,) = (key for key in KEYS if other.ops[key] != recipe.ops[key])
        assert key in inputs
        config = other.ops[key]
        assert config.weight == recipe.ops[key].weight
        is_range = config.activation.algorithm != recipe.ops[key].activation.algorithm
        found.append("static other range" if config.mode == "static" and is_range else config.mode)
    assert found == list(wanted)


@pytest.mark.parametrize(
    ("longer", "wanted"),
    [([3, 2, 4, 2, 5], 3.0), ([-3, -2, -4, -2, -5], -3.0), ([3, 2, 4, -1, 5], 0.0)],
)
def test_a_gain_counts_if_all_turns_agree(
    longer: list[float], wanted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([time for more in longer for time in (10.0 + more, 10.0)])
    monkeypatch.setattr(gains, "_seconds", lambda run: next(seconds))
    assert gains.longer(int, int) == wanted


def test_smoothing_is_bounded() -> None:
    factors = smooth_factors([1.0, 1e12, 1.0], [1.0, 1e-12, 1.0], 0.5)
    assert factors.max() == 2.0**LIMIT and factors.min() == 2.0**-LIMIT


def test_ranges_are_shared_out_only_where_it_pays() -> None:
    """Half of the noise saved is not worth a change; all but a hundredth is."""
    assert channel_scales([1.0, 16.0], [1.0, 1.0]) is None
    assert channel_scales([1.0, 16.0], [1.0, 1 / 16]) is not None
