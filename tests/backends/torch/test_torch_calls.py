"""Functions that a forward calls with its own weights are ops like any other."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch.test_torch_models import BACKEND, default
from lpot.core.backend import ModelSpec
from lpot.core.numerics.rounding import sqnr
from zoo.torch_layers import CASES


def drawn(name: str) -> tuple[nn.Module, torch.Tensor]:
    make, shape, _ = CASES[name]
    torch.manual_seed(0)
    return make().eval(), torch.randn(shape)


def loaded(name: str) -> tuple[Any, Any, Any, torch.Tensor]:
    module, x = drawn(name)
    model = BACKEND.load(module, ModelSpec(sample=lambda: (x, torch.zeros(len(x)))))
    return module, model, BACKEND.observe(model, [(x,), (x * 0.5,)], (0,))[0], x


@pytest.mark.parametrize("name", CASES)
def test_every_product_of_a_layer_is_int8(name: str, tmp_path: Path) -> None:
    module, model, observations, x = loaded(name)
    with torch.no_grad():
        truth = [module(x).numpy(), module(0.5 * x).numpy()]
    assert np.array_equal(BACKEND.run(model, (x,))[0], truth[0])
    recipe = default(model)
    built = BACKEND.build(model, recipe, observations)
    kinds = list(built.precisions.values())
    assert kinds.count("int8") == CASES[name][2], (built.precisions, built.skipped)
    for given, wanted in zip((x, 0.5 * x), truth, strict=True):
        assert sqnr(wanted, BACKEND.run(built, (given,))[0]) > 20
    exact = BACKEND.build(model, recipe.with_float(recipe.ops), observations)
    np.testing.assert_array_equal(BACKEND.run(exact, (x,))[0], truth[0])
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), drawn(name)[0])
    for other in (again.native, copy.deepcopy(built.native)):
        with torch.no_grad():
            assert np.array_equal(other(x).numpy(), BACKEND.run(built, (x,))[0])


def test_trials_are_rebuilt_without_data() -> None:
    """In another process and in `recover`, only what calibration found out is at hand."""
    module, model, observations, x = loaded("LoRA merged")
    built = BACKEND.build(model, default(model), observations)
    for seen in (observations, replace(observations, probe=())):
        elsewhere = BACKEND.build(BACKEND.load(module), built.recipe, seen)
        assert np.array_equal(BACKEND.run(elsewhere, (x,))[0], BACKEND.run(built, (x,))[0])


def test_what_stays_float_for_the_way_it_is_written_is_told() -> None:
    module = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 4))
    module[1].register_forward_hook(lambda part, inputs, output: None)
    left = BACKEND.inspect(BACKEND.load(module.eval())).left
    assert left.startswith("1 of 3 layers with weights. 1 (1): it has forward hooks")
    assert "remove them while tuning" in left
    assert not BACKEND.inspect(BACKEND.load(nn.Sequential(nn.Linear(8, 4)))).left


class Called(nn.Module):
    """One layer for values of very different sizes."""

    def __init__(self, conv: bool) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 8, 1) if conv else nn.Linear(4, 8)
        self.twice = nn.Conv1d(8, 8, 1) if conv else nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = self.first(x)
        large = self.twice(500 * torch.tanh(small)) / 500
        return large + self.twice(small)


@pytest.mark.parametrize("conv", [False, True])
def test_calls_of_very_different_ranges_do_not_share_one(conv: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Called(conv).eval(), torch.randn(8, 4, 4)
    model = BACKEND.load(module)
    built = BACKEND.build(model, default(model), BACKEND.observe(model, [(x,)], (0,))[0])
    with torch.no_grad():
        assert sqnr(module(x).numpy(), BACKEND.run(built, (x,))[0]) > 30
    told = {key.name: reason for key, reason in built.skipped.items()}
    assert list(told) == (["twice"] if conv else [])
    assert all("very different ranges" in reason for reason in told.values())
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), module)
    assert np.array_equal(BACKEND.run(again, (x,))[0], BACKEND.run(built, (x,))[0])
