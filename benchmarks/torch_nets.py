"""The nets of the PyTorch benchmark: random weights, plain modules, no stubs and nothing fused."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from models import SEED, VOCABULARY
from torch import nn
from torch.nn import functional
from torch_more_nets import UNet, Vit, Yolo, timm_net

Shapes = dict[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class TorchNet:
    """One net, what it eats, and how many times faster than FP32 it is to be."""

    name: str
    title: str
    make: Callable[[], nn.Module]
    inputs: Shapes
    goal: float
    approaches: tuple[str, ...] = ("static",)
    is_text: bool = False

    def feeds(self, count: int, seed: int = SEED) -> Iterator[dict[str, np.ndarray]]:
        random = np.random.default_rng(seed)
        for _ in range(count):
            yield {
                name: random.integers(0, VOCABULARY, shape)
                if dtype == "int64"
                else random.standard_normal(shape).astype(dtype)
                for name, (shape, dtype) in self.inputs.items()
            }

    def module(self) -> nn.Module:
        """Batch norms have seen data, so that a random net neither vanishes nor explodes."""
        torch.manual_seed(SEED)
        module = self.make().train()
        if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules()):
            with torch.no_grad():
                for feed in self.feeds(4, SEED + 1):
                    module(*map(torch.from_numpy, feed.values()))
        return module.eval()


class Basic(nn.Module):
    widening = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.down = _shortcut(inputs, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.down(x))


class Bottleneck(nn.Module):
    widening = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.down = _shortcut(inputs, 4 * width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.down(x))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    def __init__(self, block: type[Basic] | type[Bottleneck], depths: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        )
        self.pool = nn.MaxPool2d(3, 2, 1)
        blocks: list[nn.Module] = []
        inputs = 64
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage and not index else 1
                blocks.append(block(inputs, 64 << stage, stride))
                inputs = (64 << stage) * block.widening
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.head(self.blocks(self.pool(self.stem(image)))), 1))


class Inverted(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, widening: int) -> None:
        super().__init__()
        hidden = inputs * widening
        steps = [] if widening == 1 else [_conv_relu6(inputs, hidden, 1)]
        steps += [_conv_relu6(hidden, hidden, 3, stride, hidden)]
        steps += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.steps = nn.Sequential(*steps)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.steps(x) if self.is_residual else self.steps(x)


def _conv_relu6(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class MobileNetV2(nn.Module):
    ROWS = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        steps = [_conv_relu6(3, 32, 3, 2)]
        inputs = 32
        for widening, outputs, count, stride in self.ROWS:
            for index in range(count):
                steps.append(Inverted(inputs, outputs, 1 if index else stride, widening))
                inputs = outputs
        self.features = nn.Sequential(*steps, _conv_relu6(320, 1280, 1))
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(image).mean((2, 3)))


class DecoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """GPT-shaped; fed one token, as in the generation of text."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.Sequential(*(DecoderBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.tokens(ids))))


class TextCnn(nn.Module):
    """BlendCNN-like: a stack of convolutions whose pooled outputs are blended."""

    def __init__(self, width: int = 256, layers: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(layers))
        self.hidden = nn.Linear(layers * width, 4 * width)
        self.out = nn.Linear(4 * width, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids).transpose(1, 2)
        pooled = []
        for conv in self.convs:
            x = torch.relu(conv(x))
            pooled.append(x.amax(2))
        return self.out(torch.relu(self.hidden(torch.cat(pooled, 1))))


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig())


def _image(batch: int = 1) -> Shapes:
    return {"image": ((batch, 3, 224, 224), "float32")}


def _ids(batch: int, length: int, name: str = "ids") -> Shapes:
    return {name: ((batch, length), "int64")}


def _of_timm(*names: str) -> list[TorchNet]:
    """Nets whose batch norms and checks are written in timm's own way, where it is installed."""
    if importlib.util.find_spec("timm") is None:
        return []
    return [
        TorchNet(f"timm_{name}", f"timm {name} b1", partial(timm_net, name), _image(), 1.3)
        for name in names
    ]


_BOTH = ("static", "dynamic")
TORCH_NETS = {
    net.name: net
    for net in (
        TorchNet("resnet18", "ResNet-18 b1", lambda: ResNet(Basic, (2, 2, 2, 2)), _image(), 2.7),
        TorchNet(
            "resnet50", "ResNet-50 b1", lambda: ResNet(Bottleneck, (3, 4, 6, 3)), _image(), 2.7
        ),
        TorchNet("mobilenet_v2", "MobileNetV2 b1", MobileNetV2, _image(), 2.1),
        TorchNet(
            "bert_b1", "BERT-base seq 128 b1", _bert, _ids(1, 128, "input_ids"), 1.8, _BOTH, True
        ),
        TorchNet(
            "bert_b8", "BERT-base seq 128 b8", _bert, _ids(8, 128, "input_ids"), 1.6, _BOTH, True
        ),
        TorchNet("gpt", "GPT-shaped, one token", Decoder, _ids(1, 1), 4.0, _BOTH, True),
        TorchNet("text_cnn", "BlendCNN-like text CNN b32", TextCnn, _ids(32, 128), 2.9),
        TorchNet("unet", "U-Net b1", UNet, _image(), 1.8),
        TorchNet("yolo", "YOLO-like b1", Yolo, _image(), 1.5),
        TorchNet("vit", "ViT-Small b1", Vit, _image(), 1.4, _BOTH),
        *_of_timm("efficientnet_b0", "regnety_004"),
    )
}


def tensors(feed: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(value) for value in feed.values())
