"""Batch norms that libraries write in their own ways go into the convolutions before them."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from backends.torch.test_torch_models import BACKEND, default, noise


class NormAct(nn.BatchNorm2d):
    """As timm has it: checks, the function with its own tensors, then the activation."""

    def __init__(self, channels: int, act: nn.Module) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert(x.ndim == 4, f"expected 4 dimensions, got {x.ndim}")
        x = functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            False,
            self.momentum,
            self.eps,
        )
        return self.act(self.drop(x))


class FrozenBatchNorm2d(nn.Module):
    """As detection nets have it: four vectors that are no parameters."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.rand(channels) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.weight * (self.running_var + 1e-2).rsqrt()  # DETR's have no attribute for it
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)


class Net(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in ((3, 8), (8, 8), (8, 8))
        )
        acts = (nn.ReLU(), nn.SiLU(), nn.Identity())
        norms = [FrozenBatchNorm2d(8) if kind == "frozen" else NormAct(8, act) for act in acts]
        self.norms = nn.ModuleList(norms)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, _, height, width = x.shape
        torch._assert(height == width, f"{height} and {width}")
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x))
        return self.head(x.mean((2, 3)))


def trained(kind: str) -> Net:
    torch.manual_seed(0)
    net = Net(kind)
    for norm in net.norms:
        norm.running_mean.normal_(0, 0.2)
        norm.running_var.uniform_(0.5, 1.5)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, 0, 0.2)
    return net.eval()


@pytest.mark.parametrize("kind", ["functional", "frozen"])
def test_norms_of_libraries_are_folded(kind: str, tmp_path: Path) -> None:
    model = BACKEND.load(trained(kind))
    assert [part.name for part in model.prepared.captures] == [""]
    batches = [(torch.randn(2, 3, 12, 12),) for _ in range(3)]
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert len(built.folded) == 3
    assert noise(model, built, batches) > 25
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), Net(kind))
    expected = BACKEND.run(built, batches[0])[0]
    assert np.array_equal(BACKEND.run(again, batches[0])[0], expected)
    assert np.array_equal(copy.deepcopy(built.native)(*batches[0]).detach().numpy(), expected)


def test_what_a_norm_does_besides_is_done_on_every_way(tmp_path: Path) -> None:
    """A call that the captured steps were not made for takes the original forward."""
    model = BACKEND.load(trained("functional"))
    batches = [(torch.randn(2, 3, 12, 12),) for _ in range(3)]
    built = BACKEND.build(model, default(model), BACKEND.observe(model, batches, (0,))[0])
    native = built.native
    assert "forward" in native.__dict__
    with torch.no_grad():
        one_by_one = type(native).forward(native, *batches[0])
        truth = model.native(*batches[0])
    assert float((one_by_one - truth).abs().max()) < 0.1 * float(truth.abs().max())
    found = BACKEND.tensors(model, built, list(built.recipe.ops), batches[0])
    for key, (exact, low) in found.items():
        gap = np.abs(exact.output.values - low.output.values).max()
        assert gap < 0.15 * np.abs(exact.output.values).max(), key


class Asserting(nn.Module):
    """Numbers that are read and thrown away change nothing; a call for its effect does."""

    def __init__(self, effect: bool) -> None:
        super().__init__()
        self.fc, self.effect = nn.Linear(4, 4), effect

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _ = x.size(0) * 2 + x.dim()
        if self.effect:
            x.add_(1)
        return self.fc(x)


@pytest.mark.parametrize(("effect", "captured"), [(False, [""]), (True, [])])
def test_questions_are_no_effects(effect: bool, captured: list[str]) -> None:
    model = BACKEND.load(Asserting(effect).eval())
    assert [part.name for part in model.prepared.captures] == captured
