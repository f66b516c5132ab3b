"""ResNet-20 on CIFAR-10: LPOT's magnitude pruning from a yaml, at any sparsity.

    python magnitude.py --data <folder with race/ and cifar10_keras_cnn/> [--sparsity 0.5 0.8]

1400 images train the model while its weights go, 600 others evaluate it. A sparsity that does not
hold the bar gives back the sparsest state that did. No CPU runtime runs the zeros faster: for that
see resnet20.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from resnet20 import TRAINED, Augmented, ResNet20, images_of, scorer

from lpot.experimental import Pruning


class Labelled(Augmented):
    """Crops and flips, with the labels of their pictures."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, size: int = 100) -> None:
        super().__init__(images, np.zeros((0, 32, 32, 3), np.uint8), size)
        self.labels = labels

    def __iter__(self) -> Iterator[Any]:
        order = self.draw.permutation(len(self.images))
        for start in range(0, len(self) * self.own, self.own):
            chosen = order[start : start + self.own]
            yield self.moved(self.images[chosen]), self.labels[chosen]


def pruned(data: Path, sparsity: float, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    net = ResNet20().eval()
    net.load_state_dict(torch.load(data / "race" / "resnet20.pt", weights_only=True))
    images, labels = images_of(data)
    text = Path(__file__).with_name("magnitude.yaml").read_text(encoding="utf-8")
    conf = folder / f"magnitude-{100 * sparsity:g}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    conf.write_text(text.replace("target_sparsity: 0.5", f"target_sparsity: {sparsity}"), "utf-8")
    prune = Pruning(str(conf))
    prune.model = net
    prune.train_dataloader = Labelled(images[:TRAINED], labels[:TRAINED])
    prune.eval_func = scorer(images[TRAINED:], labels[TRAINED:])
    prune()
    found = prune.result
    return {
        "asked": sparsity,
        "sparsity": found.sparsity.share,
        "layers": found.sparsity.table(),
        "FP32": found.baseline,
        "accuracy": found.accuracy,
        "holds the bar": found.met,
        "target reached": found.reached,
    }


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, default=Path("lpot_workspace/magnitude"))
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.5, 0.8])
    given = parser.parse_args(argv)
    results = [pruned(given.data, sparsity, given.workspace) for sparsity in given.sparsity]
    for found in results:
        for name, value in found.items():
            print(f"{name}:\n{value}" if name == "layers" else f"{name}: {value}")
    return results


if __name__ == "__main__":
    main()
