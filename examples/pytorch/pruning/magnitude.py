"""ResNet-20 on CIFAR-10: LPOT's magnitude pruning from a yaml, at any sparsity.

    python magnitude.py --data <folder with race/ and cifar10_keras_cnn/> [--sparsity 0.5 0.8]

1400 images (and parts of photographs, where the folder has some) train the model after what it gave
before, while its weights go; 600 other images evaluate it. A sparsity that does not hold the bar
gives back the sparsest state that did. No CPU runtime runs the zeros faster: for that see
resnet20.py.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from resnet20 import PHOTOGRAPHS, TRAINED, Augmented, ResNet20, images_of, pictures, scorer

from lpot.experimental import Pruning
from lpot.experimental.common.optimizer import optimizer_registry


@optimizer_registry("Annealed", "pytorch")
class Annealed(torch.optim.Adam):
    """Adam whose learning rate falls to nothing by a cosine: the yaml's loop has a constant one."""

    def __init__(self, params: Any, learning_rate: float, steps: int) -> None:
        super().__init__(params, lr=learning_rate)
        self.start, self.steps, self.done = learning_rate, steps, 0

    def step(self, closure: Any = None) -> Any:
        share = min(1.0, self.done / self.steps)
        for group in self.param_groups:
            group["lr"] = self.start * 0.5 * (1 + math.cos(math.pi * share))
        self.done += 1
        return super().step(closure)


def pruned(data: Path, sparsity: float, epochs: int, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    net = ResNet20().eval()
    net.load_state_dict(torch.load(data / "race" / "resnet20.pt", weights_only=True))
    images, labels = images_of(data)
    others = pictures([data / name for name in PHOTOGRAPHS])
    text = Path(__file__).with_name("magnitude.yaml").read_text(encoding="utf-8")
    conf = folder / f"magnitude-{100 * sparsity:g}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    text = text.replace("target_sparsity: 0.5", f"target_sparsity: {sparsity}")
    text = text.replace("end_epoch: 16", f"end_epoch: {epochs}")
    text = text.replace("end_epoch: 8", f"end_epoch: {epochs // 2}")
    train = Augmented(images[:TRAINED], others, 64)
    conf.write_text(text.replace("steps: 688", f"steps: {epochs * len(train)}"), "utf-8")
    prune = Pruning(str(conf))
    prune.model = net
    prune.train_dataloader = train
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
    parser.add_argument("--epochs", type=int, nargs="+", default=[16, 100], help="for each of them")
    given = parser.parse_args(argv)
    results = []
    for sparsity, epochs in zip(given.sparsity, given.epochs, strict=True):
        found = pruned(given.data, sparsity, epochs, given.workspace)
        for name, value in found.items():
            print(f"{name}:\n{value}" if name == "layers" else f"{name}: {value}")
        results.append(found)
    return results


if __name__ == "__main__":
    main()
