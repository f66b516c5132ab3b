"""Kernels put channels last in memory; code that asks for views gets what it got of FP32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, noise
from lpot.backends.torch.findings import Findings


class LeNet(nn.Module):
    """As in every tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.last = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(torch.relu(self.a(x)), 2)
        x = functional.max_pool2d(torch.relu(self.b(x)), 2)
        return self.last(x.view(-1, 256))


class Viewed(nn.Module):
    """One convolution, then a view; `torn` keeps it from being captured."""

    def __init__(self, conv: nn.Module, features: int, torn: bool) -> None:
        super().__init__()
        self.conv, self.last, self.torn = conv, nn.Linear(features, 4), torn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.torn and float(x.sum()) > 1e9:
            return x
        return self.last(self.conv(x).view(x.shape[0], -1))


class Handed(nn.Module):
    """What a captured part gives is viewed outside of it, and read in INT8 inside."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU())
        self.head = Two()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, found = self.head(self.part(x))
        if float(x.sum()) > 1e9:
            return x
        return kept.view(len(x), -1).sum(1, keepdim=True) + found.view(len(x), -1)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 3, 1)

    def forward(self, x: torch.Tensor) -> Any:
        x = torch.relu(self.a(x))
        return x, self.b(x)


def viewed(conv: nn.Module, shape: tuple[int, ...], torn: bool) -> tuple[nn.Module, Any]:
    features = conv(torch.zeros(1, *shape)).numel()
    return Viewed(conv, features, torn), shape


NETS = {
    "LeNet": lambda: (LeNet(), (1, 28, 28)),
    "handed": lambda: (Handed(), (2, 8, 8)),
    **{
        f"{name}{', torn' if torn else ''}": lambda m=make, s=shape, t=torn: viewed(m(), s, t)
        for torn in (False, True)
        for name, make, shape in (
            ("1-D", lambda: nn.Conv1d(2, 4, 3), (2, 9)),
            ("2-D", lambda: nn.Conv2d(2, 4, 3), (2, 8, 8)),
            ("3-D", lambda: nn.Conv3d(2, 4, 3), (2, 5, 5, 5)),
            ("tiles", lambda: nn.ConvTranspose2d(2, 4, 2, 2), (2, 8, 8)),
        )
    },
}


@pytest.mark.parametrize("name", NETS)
def test_views_of_what_a_convolution_gives(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, shape = NETS[name]()
    nets.seeded(module)
    model = BACKEND.load(module)
    batches = [(torch.randn(2, *shape),) for _ in range(3)]
    observations = BACKEND.observe(model, batches, (0,))[0]
    assert Findings.of(observations).viewed
    recipe = default(model)
    built = BACKEND.build(model, recipe, observations)
    assert noise(model, built, batches) > 25
    BACKEND.save(built, tmp_path / "saved")
    again = BACKEND.restore(tmp_path / "saved", module)
    for one, other in zip(*(BACKEND.run(item, batches[0]) for item in (built, again)), strict=True):
        assert (one == other).all()
    for key in recipe.ops:  # alone in FP32, or alone in INT8
        rest = [other for other in recipe.ops if other != key]
        for kept in ([key], rest):
            mixed = BACKEND.build(model, recipe.with_float(kept), observations)
            assert noise(model, mixed, batches) > 25


def test_channels_stay_last_where_nobody_asks() -> None:
    """Turning values round would only cost time."""
    model = BACKEND.load(nets.seeded(nets.Cnn()))
    observations = BACKEND.observe(model, nets.images(), (0,))[0]
    assert not Findings.of(observations).viewed
