"""The CIFAR-10 ResNet-20 of the data folder as a PyTorch module: `--model resnet20:model`."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """Two convolutions; where the image shrinks, the shortcut drops pixels and adds zeros."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.grows = out - channels
        self.conv1 = nn.Conv2d(channels, out, 3, 2 if self.grows else 1, 1)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(functional.relu(self.conv1(x)))
        if self.grows:
            side = self.grows // 2
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, side, side))
        return functional.relu(x + y)


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        wide = [width for width in WIDTHS for _ in range(3)]
        self.blocks = nn.ModuleList(Block(*pair) for pair in zip([16, *wide], wide, strict=False))
        self.fc = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))


def model(name: str = "resnet20") -> ResNet20:
    net = ResNet20()
    net.load_state_dict(torch.load(DATA / "race" / f"{name}.pt", weights_only=True))
    return net.eval()
