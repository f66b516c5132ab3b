"""Muon: every direction of a weight moves by as much, whatever its gradient's size."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from lpot.backends.torch.prune.distill import (  # noqa: E402
    SIZE,
    Muon,
    optimizers_of,
    orthogonal,
)


@pytest.mark.parametrize("shape", [(8, 40), (40, 8)])
def test_directions_become_equal(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    matrix = left @ torch.diag(torch.logspace(0, -1, 8)) @ right
    sizes = torch.linalg.svdvals(orthogonal(matrix))
    assert float(sizes.min()) > 0.6 and float(sizes.max()) < 1.3


def test_a_step_is_as_large_as_adamw_s() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(16, 16, 3)
    before = conv.weight.detach().clone()
    conv.weight.grad = 1e-6 * torch.randn_like(conv.weight)
    Muon([conv.weight], lr=0.01).step()
    moved = (conv.weight.detach() - before).square().mean().sqrt()
    assert float(moved) == pytest.approx(0.01 * SIZE, rel=0.3)


def test_weights_of_one_shape_move_as_each_would_alone() -> None:
    torch.manual_seed(0)
    together = [nn.Parameter(torch.randn(6, 4, 3, 3)) for _ in range(3)]
    alone = [nn.Parameter(weight.detach().clone()) for weight in together]
    for one, other in zip(together, alone, strict=True):
        one.grad = torch.randn_like(one)
        other.grad = one.grad.clone()
    Muon(together, lr=0.1).step()
    for weight in alone:
        Muon([weight], lr=0.1).step()
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other)


def test_it_is_for_dense_convolutions_alone() -> None:
    net = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(), nn.Linear(8, 2)
    )
    muon, rest = optimizers_of(net, 0.1)
    assert isinstance(muon, Muon) and muon.param_groups[0]["params"] == [net[0].weight]
    assert len(rest.param_groups[0]["params"]) == 5  # biases, the depthwise one, the linear
    (alone,) = optimizers_of(nn.Linear(3, 2), 0.1)
    assert isinstance(alone, torch.optim.AdamW)
