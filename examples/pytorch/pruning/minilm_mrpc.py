"""MiniLM-L6 on MRPC: heads, FFN channels and layers removed, distilled, quantized, under one bar.

    python minilm_mrpc.py --data <folder with minilm_l6_mrpc/, minilm_l6_bert/ and glue/>

The training pairs of MRPC train the pruned model after the FP32 one; the dev pairs give its F1.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from resnet20 import timed
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

import lpot

Batch = tuple[dict[str, np.ndarray], np.ndarray]


class Pairs:
    """Batches of about equal length, padded to the longest of each."""

    def __init__(self, path: Path, tokenizer: Any, size: int, most: int | None = None) -> None:
        with path.open(encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:][:most]
        texts = tokenizer(
            [row[3] for row in rows], [row[4] for row in rows], truncation=True, max_length=128
        )
        self.labels = np.array([int(row[0]) for row in rows])
        self.texts, self.tokenizer, self.batch_size = texts, tokenizer, size
        self.order = np.argsort([len(ids) for ids in texts["input_ids"]], kind="stable")
        self.draw = np.random.default_rng(0)

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for number in self.draw.permutation(len(self)):
            yield self.batch(self.order[number * self.batch_size :][: self.batch_size])

    def batch(self, chosen: np.ndarray) -> Batch:
        parts = {name: [values[i] for i in chosen] for name, values in self.texts.items()}
        padded = self.tokenizer.pad(parts, return_tensors="np")
        return dict(padded), self.labels[chosen]


def model(folder: Path) -> nn.Module:
    net = BertForSequenceClassification(BertConfig.from_pretrained(folder / "minilm_l6_mrpc"))
    state = load_file(folder / "minilm_l6_mrpc" / "model.safetensors")
    for name, tensor in load_file(folder / "minilm_l6_bert" / "model.safetensors").items():
        if name.startswith("embeddings."):
            state[f"bert.{name}"] = tensor
    net.load_state_dict({name: tensor.float() for name, tensor in state.items()}, strict=False)
    return net.eval()


def scorer(pairs: Pairs) -> Callable[[nn.Module], float]:
    """F1 of the paraphrases."""
    batches = [pairs.batch(pairs.order[i : i + 32]) for i in range(0, len(pairs.labels), 32)]

    def f1(net: nn.Module) -> float:
        hits = found = real = 0
        for inputs, labels in batches:
            tensors = {name: torch.tensor(value) for name, value in inputs.items()}
            with torch.no_grad():
                guess = net(**tensors).logits.argmax(1).numpy()
            hits += int((guess & labels).sum())
            found, real = found + int(guess.sum()), real + int(labels.sum())
        return 2 * hits / max(1, found + real)

    return f1


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workspace", type=Path, default=Path("lpot_workspace/minilm"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--ratio", type=float, nargs="+", default=[0.33])
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--batch-size", type=int, default=8, help="that will be served")
    parser.add_argument("--pairs", type=int, default=None, help="of the training pairs")
    given = parser.parse_args(argv)

    tokenizer = BertTokenizerFast.from_pretrained(given.data / "minilm_l6_bert")
    folder = given.data / "glue" / "MRPC"
    train = Pairs(folder / "train.tsv", tokenizer, 16, given.pairs)
    dev = Pairs(folder / "dev.tsv", tokenizer, 32)
    calib = [inputs for inputs, _ in (train.batch(train.order[i::200][:16]) for i in range(6))]
    net, f1 = model(given.data), scorer(dev)
    structured = {
        "ratio": given.ratio,
        "epochs": given.epochs,
        "learning_rate": given.learning_rate,
        "samples": 32,
        "batch_size": given.batch_size,
        "labels": 0.5,
    }
    shared: dict[str, Any] = {"approach": "dynamic", "measure_speed": False}
    pruned = lpot.tune(
        net,
        calib,
        f1,
        0.01,
        config={"pruning": {"approach": {"structured": structured}}},
        train_loader=train,
        workspace=given.workspace / "pruned",
        **shared,
    )
    plain = lpot.tune(
        net, calib, f1, 0.01, strategy="basic", workspace=given.workspace / "plain", **shared
    )
    assert pruned.baseline is not None
    found = {
        "FP32 F1": pruned.baseline.accuracy,
        "INT8 F1": plain.accuracy,
        "pruned INT8 F1": pruned.accuracy,
        "pruned": pruned.recipe.repairs.pruning,
        "holds the bar": pruned.met,
    }
    for size in (1, 8, 16):
        inputs, _ = dev.batch(dev.order[200 : 200 + size])
        tensors = {name: torch.tensor(value) for name, value in inputs.items()}
        speed = timed(plain.model.native, pruned.model.native, lambda net, x=tensors: net(**x))
        found[f"times as fast as INT8, batch {size}"] = round(speed, 2)
    for name, value in found.items():
        print(f"{name}: {value}")
    return found


if __name__ == "__main__":
    main()
