"""Small nets and data for the tests of pruning."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.norm = nn.BatchNorm2d(2 * width)
        self.b = nn.Conv2d(2 * width, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x + self.b(functional.relu(self.norm(self.a(x)))))


class Residual(nn.Module):
    def __init__(self, width: int = 8, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.fc = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.blocks(functional.relu(self.stem(x))).mean((2, 3)))


class Batches:
    """Digits, so many at a time."""

    def __init__(self, first: int, last: int, size: int = 50) -> None:
        found = load_digits()
        self.images = (found.images[first:last, None] / 16).astype(np.float32)
        self.labels = found.target[first:last].astype(np.int64)
        self.size = size
        self.batch_size = size

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(self.labels), self.size):
            yield self.images[start : start + self.size], self.labels[start : start + self.size]

    def __len__(self) -> int:
        return -(-len(self.labels) // self.size)


def trained(net: nn.Module, batches: Batches, epochs: int = 14) -> nn.Module:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    net.train()
    for _ in range(epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(torch.tensor(images)), torch.tensor(labels))
            loss.backward()
            optimizer.step()
    return net.eval()


def scorer(batches: Batches) -> Callable[[nn.Module], float]:
    def accuracy(net: nn.Module) -> float:
        with torch.no_grad():
            found = net(torch.tensor(batches.images)).argmax(1).numpy()
        return float((found == batches.labels).mean())

    return accuracy
