"""ResNet-20 on CIFAR-10: channels and blocks removed, distilled, quantized, under one bar.

    python resnet20.py --data <folder with race/ and cifar10_keras_cnn/> [--ratio 0.35]

The 2000 images are split: 1400 train the pruned model (with crops, flips and colours, after the
FP32 model, without labels), 600 that it never sees evaluate it. With --evaluate-on (an .npz file
with other images `x`, channels last, 0 to 255, and their labels `y`) all 2000 are trained on. With
--train-on (an .npz file of such images; no labels are needed) those are trained on instead.
Photographs of any kind help: where the folder has imagenet-samples/ or coco2017-slice/, parts of
theirs are trained on, too. In the end the pruned INT8 model is timed in turns with plain INT8.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
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
PHOTOGRAPHS = ("imagenet-samples", "coco2017-slice")


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
    """Batches with random crops, flips and colours, new ones in each epoch. Three of eight images
    are others, if there are any: nobody knows their labels, but the FP32 model's outputs do. An
    epoch is at most so many batches."""

    MOST = 64

    def __init__(
        self,
        images: np.ndarray,
        others: np.ndarray,
        size: int = 32,
        mixes: bool = False,
        turns: bool = False,
    ) -> None:
        self.images, self.others, self.batch_size = images, others, size
        self.mixes, self.turns = mixes, turns
        self.own = 5 * size // 8 if len(others) else size
        self.draw = np.random.default_rng(0)

    def __len__(self) -> int:
        return min(len(self.images) // self.own, self.MOST)

    def __iter__(self) -> Iterator[tuple[np.ndarray, None]]:
        order = self.draw.permutation(len(self.images))
        for start in range(0, len(self) * self.own, self.own):
            chosen = self.images[order[start : start + self.own]]
            if len(self.others):
                more = self.draw.integers(0, len(self.others), self.batch_size - self.own)
                chosen = np.concatenate([chosen, scaled(self.others[more])])
            made = self.moved(self.draw.permutation(chosen))
            made = self.coloured(self.turned(made) if self.turns else made)
            yield self.mixed(made) if self.mixes else made, None

    def moved(self, images: np.ndarray) -> np.ndarray:
        """Crops and flips."""
        padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
        out = np.empty_like(images)
        for index, (row, column) in enumerate(self.draw.integers(0, 9, (len(images), 2))):
            crop = padded[index, :, row : row + 32, column : column + 32]
            out[index] = crop[:, :, ::-1] if self.draw.random() < 0.5 else crop
        return out

    def turned(self, images: np.ndarray) -> np.ndarray:
        """Two of five turned, stretched and sheared a little, or a part of them enlarged."""
        chosen = self.draw.random(len(images)) < 0.4
        count = int(chosen.sum())
        angle, shear, ratio = self.draw.uniform(-1, 1, (3, count)) * ((0.3,), (0.2,), (0.2,))
        size = np.exp(self.draw.uniform(-0.5, 0.25, count))
        wide, high = size * np.exp(ratio), size / np.exp(ratio)
        matrix = np.zeros((count, 2, 3), np.float32)
        matrix[:, 0, 0], matrix[:, 0, 1] = wide * np.cos(angle), wide * (shear - np.sin(angle))
        matrix[:, 1, 0], matrix[:, 1, 1] = high * np.sin(angle), high * np.cos(angle)
        matrix[:, :, 2] = self.draw.uniform(-1, 1, (count, 2)) * np.maximum(0, 1 - size)[:, None]
        given = torch.from_numpy(images[chosen])
        grid = functional.affine_grid(torch.from_numpy(matrix), list(given.shape), False)
        made = functional.grid_sample(given, grid, padding_mode="reflection", align_corners=False)
        found = images.copy()
        found[chosen] = made.numpy()
        return found

    def coloured(self, images: np.ndarray) -> np.ndarray:
        """Half of them in another contrast and tone."""
        count = (len(images), 1, 1, 1)
        chosen = self.draw.random(count) < 0.5
        contrast = np.where(chosen, self.draw.uniform(0.75, 1.25, count), 1.0)
        tone = np.where(chosen, self.draw.uniform(-0.25, 0.25, (len(images), 3, 1, 1)), 0.0)
        return (images * contrast + tone).astype(np.float32)

    def mixed(self, images: np.ndarray) -> np.ndarray:
        """Every other batch blended with itself in another order."""
        share = self.draw.random((len(images), 1, 1, 1)).astype(np.float32)
        if self.draw.random() < 0.5:
            return images
        return share * images + (1 - share) * images[::-1]


def scaled(pixels: np.ndarray) -> np.ndarray:
    """Pixels from 0 to 255, channels last, as the model takes them."""
    return ((pixels.astype(np.float32) - MEAN) / STD).transpose(0, 3, 1, 2).copy()


def pictures(folders: Iterable[Path], each: int = 40) -> np.ndarray:
    """Random parts of photographs, 32 pixels wide."""
    from PIL import Image

    draw = np.random.default_rng(0)
    found = [np.zeros((0, 32, 32, 3), np.uint8)]
    for path in sorted(path for folder in folders for path in folder.rglob("*.jpg")):
        with Image.open(path) as opened:
            photo = opened.convert("RGB")
        photo.thumbnail((320, 320))
        for _ in range(each):
            share, ratio = np.exp(draw.uniform(np.log(0.08), 0)), np.exp(draw.uniform(-0.29, 0.29))
            area = share * photo.width * photo.height
            wide = int(np.clip((area * ratio) ** 0.5, 16, photo.width))
            high = int(np.clip((area / ratio) ** 0.5, 16, photo.height))
            left = int(draw.integers(0, photo.width - wide + 1))
            top = int(draw.integers(0, photo.height - high + 1))
            box = (left, top, left + wide, top + high)
            part = photo.resize((32, 32), Image.Resampling.BICUBIC, box=box, reducing_gap=2.0)
            found.append(np.asarray(part)[None])
    return np.concatenate(found)


def images_in(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as found:
        arrays = sorted((found[name] for name in found.files), key=lambda array: -array.ndim)
    labels = arrays[1] if len(arrays) > 1 else np.zeros(len(arrays[0]))
    return scaled(arrays[0]), labels.reshape(-1).astype(np.int64)


def split_of(
    folder: Path, others: Path | None, trained: Path | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images to train on; images and labels to evaluate on."""
    images, labels = images_in(folder / "cifar10_keras_cnn" / "cifar10_test2000.npz")
    order = np.random.default_rng(1).permutation(len(images))
    if trained is not None:
        found = (images, labels) if others is None else images_in(others)
        return images_in(trained)[0], *found
    if others is not None:
        return images[order], *images_in(others)
    return images[order[:TRAINED]], images[order[TRAINED:]], labels[order[TRAINED:]]


def scorer(images: np.ndarray, labels: np.ndarray) -> Callable[[nn.Module], float]:
    def accuracy(net: nn.Module) -> float:
        parts = np.array_split(images, -(-len(images) // 200))
        with torch.no_grad():
            guess = torch.cat([net(torch.tensor(part)).argmax(1) for part in parts])
        return float((guess.numpy() == labels).mean())

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
    parser.add_argument("--epochs", type=int, default=260)
    parser.add_argument("--ratio", type=float, nargs="+", default=[0.35])
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    parser.add_argument("--batch-size", type=int, default=64, help="that will be served")
    parser.add_argument("--evaluate-on", type=Path, help=".npz file of other images; see above")
    parser.add_argument("--train-on", type=Path, help=".npz file of images to train on instead")
    parser.add_argument(
        "--photographs",
        type=Path,
        nargs="*",
        help="folders of .jpg files; default: those in --data",
    )
    given = parser.parse_args(argv)

    net = ResNet20().eval()
    weights = given.data / "race" / "resnet20.pt"
    net.load_state_dict(torch.load(weights, weights_only=True))
    images, *others = split_of(given.data, given.evaluate_on, given.train_on)
    folders = given.photographs
    if folders is None:
        folders = [given.data / name for name in PHOTOGRAPHS] if given.train_on is None else []
    train = Augmented(images, pictures(folders), 64, turns=True)
    calib = [images[i : i + 50] for i in range(0, 500, 50)]
    evaluate = scorer(*others)
    structured = {
        "ratio": given.ratio,
        "epochs": given.epochs,
        "learning_rate": given.learning_rate,
        "logits": 0.0,  # blocks alone are compared: on few images, outputs overfit
        "samples": 512,
        "batch_size": given.batch_size,
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
        "pruned": pruned.recipe.repairs.pruning,
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
