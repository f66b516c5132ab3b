"""Torn channel ranges are evened out, and only where the data flow is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, noise
from lpot.backends.torch.ranges import Observed


class Torn(nn.Module):
    """conv → batch norm → relu → pool → depthwise → relu → conv → linear, torn in three places."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.c = nn.Conv2d(8, 8, 1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.a(x))), 2)
        x = torch.relu(self.c(torch.relu(self.b(x))))
        return self.fc(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def torn() -> nn.Module:
    module: Any = nets.seeded(Torn()).eval()
    powers = 2.0 ** torch.tensor([-4, 4, 0, 3, -3, 1, -1, 2]).float()
    with torch.no_grad():
        module.norm.weight.mul_(powers)
        module.norm.bias.mul_(powers)
        module.b.weight.div_(powers.reshape(8, 1, 1, 1))
        module.b.weight.mul_(powers.reshape(8, 1, 1, 1).flip(0))
        module.b.bias.mul_(powers.flip(0))
        module.c.weight.div_(powers.flip(0).reshape(1, 8, 1, 1))
    return module


def test_ranges_are_shared_out_without_changing_a_bit() -> None:
    module = torn()
    model = BACKEND.load(module)
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    factors = Observed(observations).factors
    assert set(factors) == {"a", "b"}
    recipe = default(model)
    with torch.no_grad():
        truth = module(*batches[0]).numpy()
    floated = BACKEND.build(model, recipe.with_float(recipe.ops), observations)
    np.testing.assert_array_equal(BACKEND.run(floated, batches[0])[0], truth)


def test_int8_gains_and_a_trial_survives_saving(tmp_path: Any) -> None:
    model = BACKEND.load(torn())
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    recipe = default(model)
    built = BACKEND.build(model, recipe, observations)
    plain = BACKEND.load(nets.seeded(Torn()))
    easy = BACKEND.build(plain, recipe, BACKEND.observe(plain, batches, (0,))[0])
    assert noise(model, built, batches) > noise(plain, easy, batches) - 6
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), Torn())
    np.testing.assert_array_equal(
        BACKEND.run(again, batches[0])[0], BACKEND.run(built, batches[0])[0]
    )


class Untraceable(Torn):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if float(x.mean()) < 1e9 else x


def test_where_the_flow_is_not_known_nothing_is_moved() -> None:
    module = Untraceable()
    module.load_state_dict(torn().state_dict())
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, nets.images(), (0,))[0]
    assert not Observed(observations).factors


def test_an_even_net_is_left_alone() -> None:
    model = BACKEND.load(nets.seeded(Torn()))
    observations = BACKEND.observe(model, nets.images(), (0,))[0]
    assert not Observed(observations).factors


def test_observations_survive_the_disk(tmp_path: Any) -> None:
    from lpot.core.files.store import load_observations, save_observations

    model = BACKEND.load(torn())
    observations = BACKEND.observe(model, nets.images(), (0,))
    save_observations(tmp_path / "o.npz", observations)
    again = load_observations(tmp_path / "o.npz")[0]
    recipe = default(model)
    one = BACKEND.run(BACKEND.build(model, recipe, observations[0]), nets.images()[0])
    other = BACKEND.run(BACKEND.build(model, recipe, again), nets.images()[0])
    np.testing.assert_array_equal(one[0], other[0])
