"""Sums in INT8. One that a convolution computes overwrites the other summand, at the sum's time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, noise
from lpot.backends.torch.findings import Findings
from lpot.backends.torch.model import TorchModel


def built_from(module: nn.Module, batches: Any) -> tuple[TorchModel, TorchModel]:
    """Without the race for the fastest executor: oneDNN, which has fused sums, serves all."""
    model = BACKEND.load(nets.seeded(module))
    observations = BACKEND.observe(model, batches, (0,))[0]
    findings = replace(Findings.of(observations), kernels={})
    observations = replace(observations, own=findings.named())
    return model, BACKEND.build(model, default(model), observations)


class Broadcast(nn.Module):
    """A sum of unlike shapes must not be done in place."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 4, 3, padding=1)
        self.narrow = nn.Conv2d(3, 4, 1)
        self.last = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = self.narrow(nn.functional.adaptive_avg_pool2d(x, 1))
        return self.last(self.wide(x) + small)


class Kept(nn.Module):
    """A summand that is read again after the sum must not be overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 4, 3, padding=1)
        self.b = nn.Conv2d(4, 4, 3, padding=1)
        self.c = nn.Conv2d(4, 4, 1)
        self.d = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> Any:
        a = self.a(x)
        total = self.b(a) + a
        return self.c(total), self.d(a), a


class Own(nn.Module):
    """The summand is what the convolution reads: overwriting it would feed it its own output."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1)
        self.b, self.c = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        return self.c(x + self.b(x))


class Late(nn.Module):
    """A convolution waits for its sum, and another sum overwrites what it reads before that."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 1)
        self.c, self.d = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.e = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        late = self.c(a)
        total = self.b(x) + a
        return self.e(late + self.d(total))


class Changed(nn.Module):
    """What a waiting convolution reads is changed in place before its sum is due."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.b, self.c = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.d = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.a(x))
        short = self.b(x)
        return self.d(short + self.c(functional.relu(x, True)))


class Viewed(nn.Module):
    """A view of a summand is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.act = nn.Conv2d(3, 8, 3, padding=1), nn.Hardswish(True)
        self.b = nn.Conv2d(4, 8, 3, padding=1)
        self.c = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        left = x.chunk(2, 1)[0]
        return self.c(self.b(self.act(left)) + x)


class Padded(nn.Module):
    """Shortcuts that drop pixels and add channels of zeros; one is read again after its sum."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1)
        self.c, self.d = nn.Conv2d(8, 12, 3, 2, 1), nn.Conv2d(12, 4, 1)
        self.e = nn.Conv2d(12, 4, 1)

    def forward(self, x: torch.Tensor) -> Any:
        x = functional.relu(self.a(x))
        x = functional.relu(self.b(x) + functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2)))
        short = functional.pad(x[:, :, ::2, ::2], [0, 0, 0, 0, 1, 3], value=0)
        return self.d(functional.relu(self.c(x) + short)), self.e(short)


@pytest.mark.parametrize("kind", [Broadcast, Kept, Own, Late, Changed, Viewed, Padded])
def test_sums_that_need_care(kind: type[nn.Module]) -> None:
    batches = nets.images()
    model, built = built_from(kind(), batches)
    assert built.captured
    assert noise(model, built, batches) > 25
    first = BACKEND.run(built, batches[0])
    for one, other in zip(first, BACKEND.run(built, batches[0]), strict=True):
        np.testing.assert_array_equal(one, other)


class ReluThenSum(nn.Module):
    """The relu stands before the sum: it must not be moved behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 1)
        self.relu, self.c = nn.ReLU(), nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.relu(self.a(x)) + self.b(x))


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_relu_before_a_sum_stays_there(by_hand: bool) -> None:
    module = nets.seeded(ReluThenSum()).eval()
    if by_hand:
        from torch.ao.quantization import fuse_modules

        module = fuse_modules(module, [["a", "relu"]])
    model = BACKEND.load(module)
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert built.captured
    assert noise(model, built, batches) > 25


class InPlace(nn.Module):
    """The shortcut reads what an activation has changed in place."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.a, self.act = nn.Conv2d(3, 4, 3, padding=1), act
        self.b, self.c = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        y = self.b(self.act(x))
        return self.c(y + x)


@pytest.mark.parametrize("act", [nn.ReLU(True), nn.Hardswish(True), nn.LeakyReLU(0.3, True)])
def test_what_is_changed_in_place_is_changed_for_all(act: nn.Module) -> None:
    model = BACKEND.load(nets.seeded(InPlace(act)))
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert noise(model, built, batches) > 25
