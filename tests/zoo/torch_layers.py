"""Layers as repositories write them: classes of their own, functions with parameters, weights made
anew in each call. Each case has the number of its products that INT8 could compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f
from torch.nn.utils import parametrizations

Case = tuple[Callable[[], nn.Module], tuple[int, ...], int]
FLAT, LONG, IMAGE, SOUND, VOLUME = (8, 16), (4, 6, 16), (2, 8, 12, 12), (2, 8, 40), (2, 8, 5, 5, 5)


class Own(nn.Module):
    """A forward with the module's own parameters."""

    def __init__(self, run: Callable[..., Any], *shapes: tuple[int, ...], fixed: bool = False):
        super().__init__()
        for name, shape in zip("wbuv", shapes, strict=False):
            value = torch.randn(shape) / math.sqrt(max(1, math.prod(shape[1:])))
            if fixed:
                self.register_buffer(name, value)
            else:
                setattr(self, name, nn.Parameter(value))
        self.run = run

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self, x)


def own(shape: tuple[int, ...], ops: int, run: Any, *shapes: tuple[int, ...], **how: Any) -> Case:
    return (lambda: Own(run, *shapes, **how)), shape, ops


def derived(base: Any, sizes: Any, shape: Any, ops: int, run: Any, **more: Any) -> Case:
    """A subclass of torch's layer with a forward of its own."""
    kind = type(f"Own{base.__name__}", (base,), {"forward": run})
    return (lambda: kind(*sizes, **more)), shape, ops


def same(self: Any, x: torch.Tensor) -> torch.Tensor:
    size, kernel, stride = x.shape[-1], self.kernel_size[0], self.stride[0]
    more = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    if more > 0:
        x = f.pad(x, [more // 2, more - more // 2] * 2)
    return f.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def standard(self: Any, x: torch.Tensor) -> torch.Tensor:
    deviation, mean = torch.std_mean(self.weight, dim=(1, 2, 3), keepdim=True)
    weight = (self.weight - mean) / (deviation + 1e-5)
    return f.conv2d(x, weight, self.bias, self.stride, self.padding)


def scaled(self: Any, x: torch.Tensor) -> torch.Tensor:
    flat = self.weight.reshape(1, self.out_channels, -1)
    weight = f.batch_norm(flat, None, None, training=True).reshape_as(self.weight)
    return f.conv2d(x, weight, self.bias)


def causal(self: Any, x: torch.Tensor) -> torch.Tensor:
    return f.conv1d(f.pad(x, (2, 0)), self.weight, self.bias)


def attention(self: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = f.linear(x, self.w, self.b).chunk(3, -1)
    return f.linear(torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v, self.u)


def slices(self: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (f.linear(x, w, b) for w, b in zip(self.w.chunk(3), self.b.chunk(3), strict=True))
    return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v


def spline(self: Any, x: torch.Tensor) -> torch.Tensor:
    bases = torch.stack([torch.tanh(x + shift) for shift in (-1.0, 0.0, 1.0)], -1)
    return f.linear(f.silu(x), self.w) + f.linear(bases.flatten(1), self.b.view(12, -1))


def experts(self: Any, x: torch.Tensor) -> torch.Tensor:
    return sum(f.linear(x, self.w[i]) for i in range(3))


def repeated(self: Any, x: torch.Tensor) -> torch.Tensor:
    return f.linear(torch.relu(f.linear(x, self.w)), self.w)


def reparametrized(self: Any, x: torch.Tensor) -> torch.Tensor:
    return f.conv2d(x, self.w + f.pad(self.u, (1, 1, 1, 1)), self.b, padding=1)


def sinc(self: Any, x: torch.Tensor) -> torch.Tensor:
    time = torch.arange(-4, 5, device=x.device) * self.u.abs()
    return f.conv1d(x, (self.w * torch.sinc(time)).expand(-1, 8, -1))


class Whisper(nn.Conv1d):
    """The hook of the class that others override."""

    def _conv_forward(self, x: Any, weight: Any, bias: Any) -> torch.Tensor:
        found: torch.Tensor = super()._conv_forward(x, weight.to(x.dtype), bias.to(x.dtype))
        return 2 * found


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.table = nn.Linear(16, 16), nn.Embedding(40, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return f.linear(torch.relu(self.inner(x)), self.table.weight)


class Held(nn.Module):
    """Weights in torch's own containers."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        items = [nn.Parameter(torch.randn(16, 16) / 4) for _ in range(2)]
        self.held: Any = (
            nn.ParameterDict(zip("ab", items, strict=True)) if named else nn.ParameterList(items)
        )
        self.names: Any = "ab" if named else range(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.names:
            x = torch.relu(x @ self.held[name])
        return x


class Property(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.randn(12, 16))

    @property
    def weight(self) -> torch.Tensor:
        return f.softplus(self.raw) / 16

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return f.linear(x, self.weight)


def wrapped(norm: Any, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Case:
    return (lambda: norm(make())), shape, 1


def linear(ops: int, run: Any, **more: Any) -> Case:
    return derived(nn.Linear, (16, 12), FLAT, ops, run, **more)


def conv(run: Any, **more: Any) -> Case:
    return derived(nn.Conv2d, (8, 8, 3), IMAGE, 1, run, **more)


CASES: Mapping[str, Case] = {
    # Subclasses of nn.Linear.
    "F.linear": linear(1, lambda s, x: f.linear(x, s.weight, s.bias)),
    "by keywords": linear(1, lambda s, x: f.linear(input=x, weight=s.weight, bias=s.bias)),
    "without its bias": linear(1, lambda s, x: f.linear(x, s.weight) + s.bias),
    "super().forward": linear(1, lambda s, x: 0.5 * nn.Linear.forward(s, x)),
    "cast to the input's dtype": linear(
        1, lambda s, x: f.linear(x, s.weight.to(x.dtype), s.bias.to(x.dtype))
    ),
    "a turned weight": linear(1, lambda s, x: x @ s.weight.t() + s.bias),
    "weight.T": linear(1, lambda s, x: torch.matmul(x, s.weight.T)),
    "equalized learning rate": linear(1, lambda s, x: f.linear(x, s.weight * 0.25, s.bias * 2)),
    "cosine classifier": linear(
        1, lambda s, x: 8 * f.linear(f.normalize(x), f.normalize(s.weight))
    ),
    "positive weights": linear(1, lambda s, x: f.linear(x, s.weight.exp() / 16, s.bias)),
    "absolute weights": linear(1, lambda s, x: f.linear(x, torch.abs(s.weight))),
    "centred weights": linear(1, lambda s, x: f.linear(x, s.weight - s.weight.mean(0))),
    "clipped weights": linear(1, lambda s, x: f.linear(x, s.weight.clamp(-0.2, 0.2), s.bias)),
    "ternary weights": linear(1, lambda s, x: f.linear(x, s.weight.sign() / 16, s.bias)),
    "asking the weight": linear(
        1, lambda s, x: f.linear(x.to(s.weight.dtype), s.weight)[..., : s.weight.shape[0]]
    ),
    "dropout around": linear(
        1, lambda s, x: f.dropout(f.linear(f.dropout(x, training=False), s.weight), training=False)
    ),
    # Parameters of a module's own.
    "x @ w": own(FLAT, 1, lambda s, x: x @ s.w + s.b, (16, 12), (12,)),
    "matmul": own(LONG, 1, lambda s, x: torch.matmul(x, s.w), (16, 12)),
    "x.matmul": own(LONG, 1, lambda s, x: x.matmul(s.w), (16, 12)),
    "mm": own(FLAT, 1, lambda s, x: torch.mm(x, s.w), (16, 12)),
    "x.mm": own(FLAT, 1, lambda s, x: x.mm(s.w), (16, 12)),
    "addmm": own(FLAT, 1, lambda s, x: torch.addmm(s.b, x, s.w), (16, 12), (12,)),
    "GPT-2's view": own(
        LONG,
        1,
        lambda s, x: torch.addmm(s.b, x.view(-1, 16), s.w).view(4, 6, -1),
        (16, 12),
        (12,),
    ),
    "einsum": own(FLAT, 1, lambda s, x: torch.einsum("bi,io->bo", x, s.w), (16, 12)),
    "einsum, outputs first": own(
        LONG, 1, lambda s, x: torch.einsum("bti,oi->bto", x, s.w), (12, 16)
    ),
    "einsum with dots": own(LONG, 1, lambda s, x: torch.einsum("...i,io->...o", x, s.w), (16, 12)),
    "a mask": own(FLAT, 1, lambda s, x: f.linear(x, s.w * (s.u > 0)), (12, 16), (12,), (12, 16)),
    "low rank, made one": own(FLAT, 1, lambda s, x: f.linear(x, s.w @ s.b), (12, 4), (4, 16)),
    "LoRA": own(
        FLAT,
        3,
        lambda s, x: f.linear(x, s.w) + 2 * f.linear(f.linear(x, s.b), s.u),
        (12, 16),
        (4, 16),
        (12, 4),
    ),
    "LoRA merged": own(
        FLAT, 1, lambda s, x: f.linear(x, s.w + s.u @ s.b), (12, 16), (4, 16), (12, 4)
    ),
    "a flat vector": own(FLAT, 1, lambda s, x: f.linear(x, s.w.view(12, 16)), (192,)),
    "parts put together": own(
        FLAT, 1, lambda s, x: f.linear(x, torch.cat([s.w, s.b])), (4, 16), (8, 16)
    ),
    "slimmable": own(FLAT, 1, lambda s, x: f.linear(x, s.w[:12, :16], s.b[:12]), (32, 20), (32,)),
    "a frozen buffer": own(FLAT, 1, lambda s, x: f.linear(x, s.w), (12, 16), fixed=True),
    "attention": own(LONG, 2, attention, (48, 16), (48,), (16, 16)),
    "attention in slices": own(LONG, 3, slices, (48, 16), (48,)),
    "KAN": own(FLAT, 2, spline, (12, 16), (12, 16, 3)),
    "experts": own(FLAT, 3, experts, (3, 12, 16)),
    "one weight twice": own(FLAT, 1, repeated, (16, 16)),
    "gates of an RNN": own(
        FLAT,
        2,
        lambda s, x: torch.tanh(f.linear(x, s.w, s.b) + f.linear(x.flip(-1), s.u)),
        (12, 16),
        (12,),
        (12, 16),
    ),
    "a gated unit": own(
        FLAT, 2, lambda s, x: f.silu(f.linear(x, s.w)) * f.linear(x, s.u), (12, 16), (1,), (12, 16)
    ),
    "a parameter list": ((lambda: Held(False)), FLAT, 2),
    "a parameter dictionary": ((lambda: Held(True)), FLAT, 2),
    "a property": (Property, FLAT, 1),
    "a tied table": (Tied, FLAT, 2),
    # Subclasses of convolutions.
    "same padding": conv(same, stride=2),
    "depthwise, same padding": conv(same, groups=8),
    "weight standardization": conv(standard, padding=1),
    "scaled standardization": conv(scaled),
    "reflected padding": conv(
        lambda s, x: f.conv2d(f.pad(x, (1, 1, 1, 1), mode="reflect"), s.weight, s.bias)
    ),
    "padding by name": conv(lambda s, x: f.conv2d(x, s.weight, s.bias, padding="same")),
    "masked (PixelCNN)": conv(
        lambda s, x: f.conv2d(x, s.weight * torch.ones_like(s.weight).tril(), s.bias)
    ),
    "flipped": conv(lambda s, x: f.conv2d(x, s.weight.flip(2, 3), s.bias)),
    "demodulated": conv(
        lambda s, x: f.conv2d(x, s.weight * s.weight.square().sum((1, 2, 3), True).rsqrt())
    ),
    "half of the channels": conv(lambda s, x: f.conv2d(x[:, :4], s.weight[:, :4], s.bias)),
    "torch.conv2d": conv(lambda s, x: torch.conv2d(x, s.weight, s.bias, s.stride)),
    "Whisper": ((lambda: Whisper(8, 12, 3)), SOUND, 1),
    "causal": derived(nn.Conv1d, (8, 12, 3), SOUND, 1, causal),
    "upsampling sound": derived(
        nn.ConvTranspose1d,
        (8, 12, 4),
        SOUND,
        1,
        lambda s, x: f.conv_transpose1d(x, s.weight, s.bias, stride=2)[..., :-2],
    ),
    "upsampling": derived(
        nn.ConvTranspose2d,
        (8, 12, 2),
        IMAGE,
        1,
        lambda s, x: f.conv_transpose2d(x, s.weight, s.bias, 2),
    ),
    "causal volumes": derived(
        nn.Conv3d,
        (8, 12, 3),
        VOLUME,
        1,
        lambda s, x: f.conv3d(f.pad(x, (1, 1, 1, 1, 2, 0)), s.weight, s.bias),
    ),
    "conv's own weight": own(
        IMAGE, 1, lambda s, x: f.conv2d(x, s.w, s.b, padding=1), (12, 8, 3, 3), (12,)
    ),
    "depthwise": own(IMAGE, 1, lambda s, x: f.conv2d(x, s.w, groups=8), (8, 1, 3, 3)),
    "blur": own(
        IMAGE, 1, lambda s, x: f.conv2d(x, s.w, stride=2, groups=8), (8, 1, 3, 3), fixed=True
    ),
    "RepVGG": own(IMAGE, 1, reparametrized, (12, 8, 3, 3), (12,), (12, 8, 1, 1)),
    "sinc filters": own(SOUND, 1, sinc, (12, 1, 1), (1,), (12, 1, 1)),
    # Parametrized.
    "weight norm": wrapped(parametrizations.weight_norm, lambda: nn.Linear(16, 12), FLAT),
    "old weight norm": wrapped(nn.utils.weight_norm, lambda: nn.Conv1d(8, 12, 3), SOUND),
    "spectral norm": wrapped(parametrizations.spectral_norm, lambda: nn.Conv2d(8, 12, 3), IMAGE),
    "orthogonal": wrapped(parametrizations.orthogonal, lambda: nn.Linear(16, 12), FLAT),
    "pruned": wrapped(
        lambda module: nn.utils.prune.random_unstructured(module, "weight", 0.3),
        lambda: nn.Linear(16, 12),
        FLAT,
    ),
}
