"""ResNet-20 on CIFAR-10: LPOT's magnitude pruning from a yaml, at any sparsity.

    python magnitude.py --data <folder with race/ and cifar10_keras_cnn/> [--sparsity 0.5 0.8]

1400 images (and parts of photographs, where the folder has some) train the model after what it gave
before, while its weights go; 600 other images evaluate it. With --evaluate-on FILE.npz all 2000 are
trained on, as in resnet20.py. A sparsity that does not hold the bar gives back the sparsest state
that did. No CPU runtime runs the zeros faster: for that see resnet20.py.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import torch
from resnet20 import PHOTOGRAPHS, Augmented, ResNet20, pictures, scorer, split_of

from lpot.experimental import Pruning


def pruned(
    data: Path, sparsity: float, epochs: int, folder: Path, evaluate_on: Path | None = None
) -> dict[str, Any]:
    torch.manual_seed(0)
    net = ResNet20().eval()
    net.load_state_dict(torch.load(data / "race" / "resnet20.pt", weights_only=True))
    images, *evaluated = split_of(data, evaluate_on)
    others = pictures([data / name for name in PHOTOGRAPHS])
    text = Path(__file__).with_name("magnitude.yaml").read_text(encoding="utf-8")
    conf = folder / f"magnitude-{100 * sparsity:g}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    text = text.replace("target_sparsity: 0.5", f"target_sparsity: {sparsity}")
    ends = {"16": epochs, "6": 2 * epochs // 5}  # of the training, and of the rising sparsity
    text = re.sub(r"end_epoch: (\d+)", lambda found: f"end_epoch: {ends[found[1]]}", text)
    conf.write_text(text, "utf-8")
    prune = Pruning(str(conf))
    prune.model = net
    prune.train_dataloader = Augmented(images, others, 64, mixes=True)
    prune.eval_func = scorer(*evaluated)
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
    parser.add_argument("--epochs", type=int, nargs="+", default=[16, 40], help="for each of them")
    parser.add_argument("--evaluate-on", type=Path, help=".npz file, as for resnet20.py")
    given = parser.parse_args(argv)
    results = []
    for sparsity, epochs in zip(given.sparsity, given.epochs, strict=True):
        found = pruned(given.data, sparsity, epochs, given.workspace, given.evaluate_on)
        for name, value in found.items():
            print(f"{name}:\n{value}" if name == "layers" else f"{name}: {value}")
        results.append(found)
    return results


if __name__ == "__main__":
    main()
