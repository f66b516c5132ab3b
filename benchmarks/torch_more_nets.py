"""More nets of the PyTorch benchmark: segmentation, detection and vision transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class UNet(nn.Module):
    """Up-convolutions of 2 x 2, and what was kept from the way down."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256)) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(_double, (3, *widths[:-1]), widths))
        pairs = list(zip(widths[1:], widths[:-1], strict=True))[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(deep, flat, 2, 2) for deep, flat in pairs)
        self.right = nn.ModuleList(_double(2 * flat, flat) for _, flat in pairs)
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            x = block(x if not kept else functional.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, block in zip(self.up, self.right, strict=True):
            x = block(torch.cat([up(x), kept.pop()], 1))
        return self.head(x)


def _double(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(_relu(inputs, outputs), _relu(outputs, outputs))


def _relu(inputs: int, outputs: int) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Yolo(nn.Module):
    """SiLU everywhere, split and joined channels, heads at two scales: as YOLOv8 is built."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(_silu(3, width, 3, 2), _silu(width, 2 * width, 3, 2))
        self.flat = nn.Sequential(Split(2 * width), _silu(2 * width, 4 * width, 3, 2))
        self.middle = Split(4 * width)
        self.deep = nn.Sequential(_silu(4 * width, 8 * width, 3, 2), Split(8 * width))
        self.side = nn.Sequential(_silu(12 * width, 4 * width, 1), Split(4 * width))
        heads = [(4 * width), (8 * width)]
        self.heads = nn.ModuleList(nn.Conv2d(inputs, 84, 1) for inputs in heads)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.middle(self.flat(self.stem(x)))
        deep = self.deep(x)
        up = functional.interpolate(deep, scale_factor=2, mode="nearest")
        return [self.heads[0](self.side(torch.cat([up, x], 1))), self.heads[1](deep)]


class Split(nn.Module):
    """YOLOv8's C2f with two bottlenecks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = _silu(width, width, 1), _silu(2 * width, width, 1)
        half = width // 2
        self.inner = nn.ModuleList(
            nn.Sequential(_silu(half, half, 3), _silu(half, half, 3)) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.inner:
            parts.append(parts[-1] + block(parts[-1]))
        return self.last(torch.cat(parts, 1))


def _silu(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.SiLU(inplace=True))


class Vit(nn.Module):
    """ViT-Small: patches of 16, 12 blocks."""

    def __init__(self, width: int = 384, heads: int = 6, blocks: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def timm_net(name: str) -> Any:
    """A net of timm, which comes with the extra `zoo`."""
    import timm

    return timm.create_model(name, pretrained=False)
