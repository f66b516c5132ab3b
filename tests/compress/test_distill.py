"""What a smaller module is trained by: its outputs, its blocks, or both."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from lpot.backends.torch.prune.distill import distill  # noqa: E402
from lpot.core.compress.settings import Distill  # noqa: E402

BLOCKS_ALONE = Distill(epochs=40, learning_rate=3e-3, logits=0.0, mixup=False)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return torch.relu(x + self.b(torch.relu(self.a(x))))


def blocks() -> nn.Module:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(Block(), Block()), *head)


def no_blocks() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8 * 8, 5))


def pair(make: Any) -> tuple[nn.Module, nn.Module]:
    """A student whose convolutions are off, and its teacher."""
    torch.manual_seed(0)
    teacher = make().eval()
    student = copy.deepcopy(teacher)
    with torch.no_grad():
        for weight in student.parameters():
            if weight.dim() == 4:
                weight.add_(0.05 * torch.randn_like(weight))
    return student, teacher


def loader() -> list[tuple[np.ndarray, None]]:
    draw = np.random.default_rng(0)
    return [(draw.normal(size=(16, 3, 10, 10)).astype(np.float32), None) for _ in range(4)]


def error(student: nn.Module, teacher: nn.Module) -> float:
    x = torch.tensor(np.concatenate([images for images, _ in loader()]))
    with torch.no_grad():
        return float((student(x) - teacher(x)).square().mean() / teacher(x).square().mean())


def test_blocks_alone_leave_what_is_behind_them_as_it_was() -> None:
    student, teacher = pair(blocks)
    before = error(student, teacher)
    trained = distill(student, teacher, loader(), BLOCKS_ALONE)
    assert error(trained, teacher) < 0.5 * before
    assert torch.equal(trained[-1].weight, teacher[-1].weight)
    assert torch.equal(trained[-1].bias, teacher[-1].bias)


def test_without_blocks_to_compare_the_outputs_are() -> None:
    student, teacher = pair(no_blocks)
    before = error(student, teacher)
    assert error(distill(student, teacher, loader(), BLOCKS_ALONE), teacher) < 0.5 * before


def test_where_the_last_block_can_not_be_compared_the_outputs_are() -> None:
    student, teacher = pair(blocks)
    # Its width was cut: nothing but the outputs tells what should come behind it.
    student[1][1] = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.ReLU())
    student[-1] = nn.Linear(4, 5)
    before = error(student, teacher)
    trained = distill(student, teacher, loader(), BLOCKS_ALONE)
    assert error(trained, teacher) < 0.5 * before
