"""ResNet-20 on CIFAR-10: channels and blocks removed, distilled, quantized, under one bar.

    python resnet20.py --data <folder with race/ and cifar10_keras_cnn/> [--epochs 60] [--ratio 0.4]

The 2000 images are split: 1400 train the pruned model (with crops and flips, after the FP32 model,
without labels), 600 that it never sees evaluate it. In the end the pruned INT8 model is timed in
turns with plain INT8.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import lpot

MEAN = 255 * np.array((0.485, 0.456, 0.406), np.float32)
STD = 255 * np.array((0.229, 0.224, 0.225), np.float32)
TRAINED = 1400  # of the 2000 images


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
        wide = [width for width in (16, 32, 64) for _ in range(3)]
        self.blocks = nn.ModuleList(Block(*pair) for pair in zip([16, *wide], wide, strict=False))
        self.fc = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))


class Augmented:
    """Batches with random crops and flips, new ones in each epoch."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, size: int = 100) -> None:
        self.images, self.labels, self.batch_size = images, labels, size
        self.draw = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.labels) // self.batch_size

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = self.draw.permutation(len(self.labels))
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            chosen = order[start : start + self.batch_size]
            yield self._changed(self.images[chosen]), self.labels[chosen]

    def _changed(self, images: np.ndarray) -> np.ndarray:
        padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
        out = np.empty_like(images)
        for index, (row, column) in enumerate(self.draw.integers(0, 9, (len(images), 2))):
            crop = padded[index, :, row : row + 32, column : column + 32]
            out[index] = crop[:, :, ::-1] if self.draw.random() < 0.5 else crop
        return out


def images_of(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / "cifar10_keras_cnn" / "cifar10_test2000.npz") as found:
        arrays = sorted((found[name] for name in found.files), key=lambda array: -array.ndim)
    images = ((arrays[0].astype(np.float32) - MEAN) / STD).transpose(0, 3, 1, 2).copy()
    order = np.random.default_rng(1).permutation(len(images))
    return images[order], arrays[1].reshape(-1).astype(np.int64)[order]


def scorer(images: np.ndarray, labels: np.ndarray) -> Callable[[nn.Module], float]:
    def accuracy(net: nn.Module) -> float:
        with torch.no_grad():
            parts = [net(torch.tensor(images[i : i + 200])).argmax(1) for i in range(0, 600, 200)]
        return float((torch.cat(parts).numpy() == labels).mean())

    return accuracy


def timed(
    slow: nn.Module, fast: nn.Module, run: Callable[[nn.Module], Any], rounds: int = 30
) -> float:
    """How many times as fast: the medians of many short turns."""
    spent: tuple[list[float], list[float]] = ([], [])
    with torch.no_grad():
        for _ in range(rounds):
            for net, times in zip((slow, fast), spent, strict=True):
                run(net)
                start = time.perf_counter()
                for _ in range(3):
                    run(net)
                times.append(time.perf_counter() - start)
    return float(np.median(spent[0]) / np.median(spent[1]))


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, default=Path("lpot_workspace/resnet20"))
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--ratio", type=float, nargs="+", default=[0.45, 0.4, 0.3])
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    given = parser.parse_args(argv)

    net = ResNet20().eval()
    weights = given.data / "race" / "resnet20.pt"
    net.load_state_dict(torch.load(weights, weights_only=True))
    images, labels = images_of(given.data)
    train = Augmented(images[:TRAINED], labels[:TRAINED])
    calib = [images[i : i + 50] for i in range(0, 500, 50)]
    evaluate = scorer(images[TRAINED:], labels[TRAINED:])
    structured = {
        "ratio": given.ratio,
        "epochs": given.epochs,
        "learning_rate": given.learning_rate,
        "samples": 100,
    }
    pruned = lpot.tune(
        net,
        calib,
        evaluate,
        0.01,
        config={"pruning": {"approach": {"structured": structured}}},
        train_loader=train,
        workspace=given.workspace / "pruned",
        measure_speed=False,
    )
    plain = lpot.tune(
        net,
        calib,
        evaluate,
        0.01,
        strategy="basic",
        workspace=given.workspace / "plain",
        measure_speed=False,
    )
    assert pruned.baseline is not None
    found = {
        "FP32": pruned.baseline.accuracy,
        "INT8": plain.accuracy,
        "pruned INT8": pruned.accuracy,
        "pruned": [word for word in pruned.recipe.repairs if word.startswith("pruned")],
        "holds the bar": pruned.met,
        "bytes": [plain.sizes[1], pruned.sizes[1]],
    }
    for size in (1, 16, 64):
        x = torch.tensor(images[:size])
        speed = timed(plain.model.native, pruned.model.native, lambda net, x=x: net(x))
        found[f"times as fast as INT8, batch {size}"] = round(speed, 2)
    for name, value in found.items():
        print(f"{name}: {value}")
    return found


if __name__ == "__main__":
    main()
