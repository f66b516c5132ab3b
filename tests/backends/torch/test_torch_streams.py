"""Streams of channels: what is tied together, what is left alone, and that no bit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import torch
from torch import nn
from torch.nn import functional

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default
from lpot.backends.torch.ranges import Observed
from search.as_torch import as_torch
from search.tear import MENDED
from search.tear_more import MENDED_MORE

NETS = {**MENDED, **MENDED_MORE}
TORN = ("residual stream", "depthwise chain", "branches", "perceptron", "squeeze and excite")
TORN += ("giant channel", "padded shortcut", "grouped", "leaky")


@pytest.mark.parametrize("name", TORN)
def test_fp32_results_stay_bit_for_bit(name: str) -> None:
    torn = NETS[name](3)
    module = as_torch(torn.model)
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, torn.batches[:2], (0,))[0]
    assert Observed(observations).factors
    recipe = default(model)
    floated = BACKEND.build(model, recipe.with_float(recipe.ops), observations)
    with torch.no_grad():
        truth = module(torch.from_numpy(torn.batches[0][0])).numpy()
    np.testing.assert_array_equal(BACKEND.run(floated, torn.batches[0])[0], truth)


class Small(nn.Module):
    """Two convolutions with something between, and a norm behind the first."""

    def __init__(self, between: Any, width: int = 8) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.two, self.between = nn.Conv2d(width, 4, 1), between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.between(self.norm(self.one(x))))


def streams(module: nn.Module) -> list[tuple[set[str], set[str]]]:
    prepared = BACKEND.load(nets.seeded(module).eval()).prepared
    assert prepared is not None
    return [
        ({op for op, _ in stream.makers}, {op for op, _ in stream.readers})
        for stream in prepared.streams
    ]


BOTH = [({"one"}, {"two"})]


@pytest.mark.parametrize(
    ("between", "width", "found"),
    [
        (functional.relu, 8, BOTH),
        (lambda x: x + x, 8, BOTH),
        (lambda x: functional.pad(x, (1, 1, 0, 0, 2, 1)), 11, BOTH),
        (lambda x: x[:, :, ::2], 8, BOTH),
        (lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)), 8, []),
        (functional.relu6, 8, []),
        (functional.hardswish, 8, []),
        (lambda x: x + 1.0, 8, []),
        (lambda x: x[:, 2:6], 4, []),
        (lambda x: torch.cat([x, x], 1), 16, []),
        (lambda x: functional.pad(x, (1, 1), value=1.0), 8, []),
        (lambda x: x.flip(1), 8, []),
    ],
)
def test_what_lets_factors_through(between: Any, width: int, found: Any) -> None:
    assert streams(Small(between, width)) == found


class Twice(nn.Module):
    """A layer that is called twice, in the middle of a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.two(torch.relu(self.one(x))))


def test_a_layer_that_is_called_twice_is_left_alone() -> None:
    assert streams(Twice()) == []


class Leaving(Small):
    def forward(self, x: torch.Tensor) -> Any:
        made = self.norm(self.one(x))
        return made, self.two(made)


def test_what_leaves_the_net_is_fixed() -> None:
    assert streams(Leaving(None)) == []
