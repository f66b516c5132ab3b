"""Nets that runtimes are compared on: random weights, in the shapes that people deploy."""

from __future__ import annotations

import itertools
from typing import Any

from models import NETS, Net


def _vit_small() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_labels=1000
    )
    return ViTForImageClassification(config)


def _minilm() -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
        )
    )


def _distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    return DistilBertModel(DistilBertConfig())


def _efficientnet() -> Any:
    from torch import nn
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=224, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280
    )
    net = EfficientNetForImageClassification(config)
    net.efficientnet.pooler = nn.AdaptiveAvgPool2d(1)  # its own kernel is larger than the image
    for part in net.modules():  # with the weights that it begins with, nothing reaches the end
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
    return net


def _swin() -> Any:
    from transformers import SwinConfig, SwinForImageClassification

    return SwinForImageClassification(SwinConfig(num_labels=1000))


def _convnext() -> Any:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(ConvNextConfig(num_labels=1000))


def _block(inside: int, outside: int, stride: int = 1, size: int = 3) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(inside, outside, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outside),
        nn.SiLU(),
    )


def _yolo() -> Any:
    """As YOLOv8's nano: SiLU everywhere, split and concatenated, three heads behind one another."""
    import torch
    from torch import nn

    class Split(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            half = width // 2
            self.enter, self.leave = _block(width, width, size=1), _block(3 * half, width, size=1)
            self.one, self.two = _block(half, half), _block(half, half)

        def forward(self, x: Any) -> Any:
            kept, rest = self.enter(x).chunk(2, 1)
            return self.leave(torch.cat([kept, rest, rest + self.two(self.one(rest))], 1))

    class Yolo(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            widths = [16, 32, 64, 128, 256]
            self.stem = _block(3, widths[0], 2)
            self.stages = nn.ModuleList(
                nn.Sequential(_block(a, b, 2), Split(b)) for a, b in itertools.pairwise(widths)
            )
            self.merge = nn.Sequential(_block(128 + 256, 128, size=1), Split(128))
            self.heads = nn.ModuleList(nn.Conv2d(width, 84, 1) for width in (128, 256))

        def forward(self, pixel_values: Any) -> Any:
            x, seen = self.stem(pixel_values), []
            for stage in self.stages:
                x = stage(x)
                seen.append(x)
            wide = nn.functional.interpolate(x, scale_factor=2.0)
            middle = self.merge(torch.cat([seen[-2], wide], 1))
            found = [
                head(one).flatten(2) for head, one in zip(self.heads, (middle, x), strict=True)
            ]
            return torch.cat(found, 2).sigmoid()

    return Yolo()


def _unet() -> Any:
    import torch
    from torch import nn

    class Unet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            widths = [32, 64, 128, 256]
            self.down = nn.ModuleList(
                _relus(a, b) for a, b in zip([3, *widths], widths, strict=False)
            )
            self.up = nn.ModuleList(
                _relus(b + a, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True)
            )
            self.head = nn.Conv2d(widths[0], 2, 1)

        def forward(self, pixel_values: Any) -> Any:
            x, seen = pixel_values, []
            for stage in self.down:
                x = stage(x if not seen else nn.functional.max_pool2d(x, 2))
                seen.append(x)
            for stage, skip in zip(self.up, seen[-2::-1], strict=True):
                x = stage(torch.cat([skip, nn.functional.interpolate(x, scale_factor=2.0)], 1))
            return self.head(x)

    return Unet()


def _relus(inside: int, outside: int) -> Any:
    from torch import nn

    def one(a: int, b: int) -> list[Any]:
        return [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

    return nn.Sequential(*one(inside, outside), *one(outside, outside))


def _crnn() -> Any:
    """Text in pictures: convolutions, then a recurrent net along the line."""
    from torch import nn

    class Crnn(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                _relus(3, 64),
                nn.MaxPool2d(2),
                _relus(64, 128),
                nn.MaxPool2d((4, 2)),
                _relus(128, 256),
            )
            self.line = nn.LSTM(256, 128, bidirectional=True, batch_first=True)
            self.head = nn.Linear(256, 97)

        def forward(self, pixel_values: Any) -> Any:
            x = self.body(pixel_values).mean(2).transpose(1, 2)
            return self.head(self.line(x)[0])

    return Crnn()


def _conformer() -> Any:
    """One block of an encoder of speech: half feed-forward, attention, depthwise convolution."""
    from torch import nn

    class Conformer(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int = 256) -> None:
            super().__init__()
            self.first, self.last = self._forward_part(width), self._forward_part(width)
            self.norm, self.q, self.k, self.v, self.out = (
                nn.LayerNorm(width),
                *(nn.Linear(width, width) for _ in range(4)),
            )
            self.before = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GLU(-1)
            )
            self.deep = nn.Conv1d(width, width, 31, padding=15, groups=width)
            self.after = nn.Linear(width, width)

        def _forward_part(self, width: int) -> Any:
            return nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.SiLU(),
                nn.Linear(4 * width, width),
            )

        def forward(self, pixel_values: Any) -> Any:
            x = pixel_values + 0.5 * self.first(pixel_values)
            y = self.norm(x)
            rows, length, width = y.shape
            q, k, v = (
                part(y).reshape(rows, length, 4, width // 4).transpose(1, 2)
                for part in (self.q, self.k, self.v)
            )
            seen = (q @ k.transpose(2, 3) / 8.0).softmax(-1) @ v
            x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
            deep = self.deep(self.before(x).transpose(1, 2)).transpose(1, 2)
            x = x + self.after(nn.functional.silu(deep))
            return x + 0.5 * self.last(x)

    return Conformer()


def _images(batch: int, size: int) -> dict[str, tuple[tuple[int, ...], str]]:
    return {"pixel_values": ((batch, 3, size, size), "float32")}


def _tokens(batch: int, length: int = 128) -> dict[str, tuple[tuple[int, ...], str]]:
    shape = ((batch, length), "int64")
    return {"input_ids": shape, "attention_mask": shape}


RUNTIME_NETS = {
    **NETS,
    "mobilenet_v2_b16": Net(
        "mobilenet_v2_b16", "MobileNetV2 b16", NETS["mobilenet_v2"].make, _images(16, 224)
    ),
    "minilm_b32": Net("minilm_b32", "MiniLM-L6 b32 s128", _minilm, _tokens(32), is_text=True),
    "distilbert": Net("distilbert", "DistilBERT b1 s128", _distilbert, _tokens(1), is_text=True),
    "vit_s": Net("vit_s", "ViT-S b1", _vit_small, _images(1, 224)),
    "swin_t": Net("swin_t", "Swin-T b1", _swin, _images(1, 224)),
    "convnext_t": Net("convnext_t", "ConvNeXt-T b1", _convnext, _images(1, 224)),
    "efficientnet_b0": Net("efficientnet_b0", "EfficientNet-B0 b1", _efficientnet, _images(1, 224)),
    "yolo": Net("yolo", "YOLO-like b1 320", _yolo, _images(1, 320)),
    "unet": Net("unet", "U-Net b1 256", _unet, _images(1, 256)),
    "crnn": Net("crnn", "CRNN b1 32x256", _crnn, {"pixel_values": ((1, 3, 32, 256), "float32")}),
    "conformer": Net(
        "conformer",
        "Conformer block, 200 frames",
        _conformer,
        {"pixel_values": ((1, 200, 256), "float32")},
    ),
}
