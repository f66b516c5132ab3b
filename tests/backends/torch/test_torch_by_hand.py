"""Weights that a model's code takes from its linears and multiplies with by itself."""

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
from lpot.backends.torch.modules import LowLinear


class ByHand(nn.Module):
    """`qkv` as torchvision's Swin has it, `other` with another bias than its own as BEiT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv, self.other, self.out = nn.Linear(16, 48), nn.Linear(48, 16), nn.Linear(16, 4)
        self.shift = nn.Parameter(torch.randn(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.linear(self.norm(x), self.qkv.weight, self.qkv.bias)
        if x.shape[0] > 1000:  # can't be captured
            x = x + 1
        x = functional.linear(torch.relu(x), self.other.weight, bias=self.shift)
        return self.out(x) + self.other.weight.sum() * 0


@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_weights_used_by_hand_are_int8(approach: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BACKEND.load(ByHand().eval())
    batches = [(torch.randn(6, 16),) for _ in range(3)]
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model, approach), observations)
    low = [part for part in built.native.modules() if isinstance(part, LowLinear)]
    assert len(low) == 3 and not built.skipped
    assert 25 < noise(model, built, batches) < 90
    calls = []
    low[0].register_forward_hook(lambda *given: calls.append(given))
    expected = BACKEND.run(built, batches[0])[0]
    assert calls, "the product went past the INT8 op"
    assert np.array_equal(copy.deepcopy(built.native)(*batches[0]).detach().numpy(), expected)
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), ByHand())
    assert np.array_equal(BACKEND.run(again, batches[0])[0], expected)


def test_the_weight_is_a_tensor_to_everybody_else() -> None:
    torch.manual_seed(0)
    model = BACKEND.load(nn.Sequential(nn.Linear(16, 8)).eval())
    batches = [(torch.randn(6, 16),)]
    built = BACKEND.build(model, default(model), BACKEND.observe(model, batches, (0,))[0])
    weight, exact = built.native[0].weight, model.native[0].weight
    assert weight.shape == exact.shape and weight.dtype == torch.float32
    assert weight.size(0) == 8 and weight.device.type == "cpu"
    assert float((weight - exact.detach()).abs().max()) < 0.01
    assert type(weight[2:4]) is torch.Tensor and type(torch.cat([weight, weight])) is torch.Tensor


class Held(nn.Module):
    """Weights of no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.experts, self.gate = nn.Parameter(torch.randn(4, 16, 16)), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bi,eio,be->bo", x, self.experts, self.gate(x))


def test_parameters_without_a_layer_are_told() -> None:
    reasons = {
        key.name: info.reason
        for key, info in BACKEND.inspect(BACKEND.load(Held().eval())).ops.items()
    }
    assert reasons[""].startswith("experts: its forward uses the weight in a way that no INT8")
