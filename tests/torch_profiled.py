"""A small net in a module of its own: other processes import it by name."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(3, 16, 3, padding=1)
        self.b = nn.BatchNorm2d(16)
        self.r = nn.ReLU()
        self.c2 = nn.Conv2d(16, 16, 3, padding=1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.r(self.b(self.c1(x)))
        y = y + self.c2(y)
        return self.fc(y.mean((2, 3)))
