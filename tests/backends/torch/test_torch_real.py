"""Real models on real data: how much accuracy is left when everything is INT8."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from backends.torch.test_torch_models import BACKEND, default

DATA = Path(os.environ.get("LPOT_DATA") or Path(__file__).parents[4] / "shared" / "data")

pytestmark = pytest.mark.slow


def needs(*names: str) -> None:
    missing = [name for name in names if not (DATA / name).exists()]
    if missing:
        pytest.skip(f"LPOT_DATA has no {missing[0]}")


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, outputs // inputs, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.pad = (outputs - inputs) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(torch.relu(self.conv1(x)))
        if self.pad:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return torch.relu(y + x)


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        widths = [16] * 4 + [32] * 3 + [64] * 3
        self.blocks = nn.Sequential(*map(Block, widths[:-1], widths[1:]))
        self.fc = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.blocks(torch.relu(self.stem(x))).mean((2, 3)))


def cifar() -> tuple[torch.Tensor, np.ndarray]:
    with np.load(DATA / "cifar10_keras_cnn" / "cifar10_test2000.npz") as arrays:
        x, y = arrays["x"].astype(np.float32), arrays["y"].reshape(-1)
    mean, spread = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32) * 255
    return torch.from_numpy(((x - mean) / spread).transpose(0, 3, 1, 2).copy()), y


def accuracy(model: Any, batches: list[tuple[Any, np.ndarray]]) -> float:
    right = [BACKEND.run(model, inputs)[0].argmax(1) == labels for inputs, labels in batches]
    return float(np.mean(np.concatenate(right)))


@pytest.mark.parametrize("name", ["resnet20", "resnet20_hard"])
@pytest.mark.parametrize("target", ["vnni", "avx2"])
def test_resnet20_stays_within_one_percent_all_int8(name: str, target: Any) -> None:
    needs("race", "cifar10_keras_cnn")
    module = ResNet20()
    module.load_state_dict(torch.load(DATA / "race" / f"{name}.pt", weights_only=True))
    model = BACKEND.load(module)
    x, y = cifar()
    observations = BACKEND.observe(model, [(x[i : i + 50],) for i in range(0, 500, 50)], (0,))[0]
    batches = [((x[i : i + 100],), y[i : i + 100]) for i in range(500, 2000, 100)]
    truth = accuracy(model, batches)
    assert truth > 0.91
    from lpot.core.space import restrict

    recipe = restrict(BACKEND.inspect(model, "static", target), ()).default()
    overflows = target == "vnni" and "reduced" in str(BACKEND.inspect(model).notes)
    assert ("overflow" in BACKEND.overflow(model, recipe)) is overflows
    if overflows:
        return  # it is told, and nothing is promised of such a model
    built = BACKEND.build(model, recipe, observations)
    assert not built.skipped
    assert accuracy(built, batches) > truth * 0.99


def mrpc(tokenizer: Any, split: str, count: int) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    text = (DATA / "glue" / "MRPC" / f"{split}.tsv").read_text("utf-8-sig")
    rows = [line.split("\t") for line in text.splitlines()[1 : count + 1]]
    for start in range(0, len(rows), 24):
        part = rows[start : start + 24]
        pairs = [row[3] for row in part], [row[4] for row in part]
        batch = tokenizer(
            *pairs, padding=True, truncation=True, max_length=128, return_tensors="pt"
        )
        yield dict(batch), np.array([int(row[0]) for row in part])


def minilm(task: str, head: str) -> tuple[nn.Module, Any]:
    """MiniLM fine-tuned on a task, and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    safetensors = pytest.importorskip("safetensors.torch")
    folder = f"minilm_l6_{task}"
    needs(folder, "minilm_l6_bert")
    config = transformers.BertConfig.from_pretrained(DATA / folder)
    module = getattr(transformers, head)(config).eval()
    tensors = safetensors.load_file(DATA / folder / "model.safetensors")
    shared = safetensors.load_file(DATA / "minilm_l6_bert" / "model.safetensors")
    tensors |= {f"bert.{k}": v for k, v in shared.items() if k.startswith("embeddings.")}
    module.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
    return module, transformers.AutoTokenizer.from_pretrained(DATA / "minilm_l6_bert")


@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_minilm_on_mrpc_stays_within_three_percent(approach: Any) -> None:
    needs("glue")
    module, tokenizer = minilm("mrpc", "BertForSequenceClassification")
    model = BACKEND.load(module)
    batches = list(mrpc(tokenizer, "dev", 408))
    truth = accuracy(model, batches)
    assert truth == pytest.approx(0.7917, abs=0.003)
    calibration = [inputs for inputs, _ in mrpc(tokenizer, "train", 120)]
    observations = BACKEND.observe(model, calibration, (0,))[0]
    built = BACKEND.build(model, default(model, approach), observations)
    assert accuracy(built, batches) > truth * 0.97
    assert built.nbytes < 0.27 * model.nbytes
