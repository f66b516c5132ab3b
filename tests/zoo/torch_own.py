"""Nets of our own with what other collections lack: odd flows, odd layers, odd batches."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Image = Callable[[], Any]


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = _double(3, width), _double(width, 2 * width)
        self.bottom = _double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.right2, self.right1 = _double(4 * width, 2 * width), _double(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(functional.max_pool2d(a, 2))
        c = self.bottom(functional.max_pool2d(b, 2))
        b = self.right2(torch.cat([self.up2(c), b], 1))
        return self.head(self.right1(torch.cat([self.up1(b), a], 1)))


def _double(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class YoloLike(nn.Module):
    """Splits, bottlenecks, an upsampled path and three heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _silu(3, 16, 2)
        self.split = _silu(16, 32)
        self.inner = nn.ModuleList(_silu(16, 16) for _ in range(2))
        self.join = _silu(64, 32)
        self.deep = _silu(32, 32, 2)
        self.side = _silu(64, 16)
        self.heads = nn.ModuleList([nn.Conv2d(16, 6, 1), nn.Conv2d(32, 6, 1)])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        parts = list(self.split(self.stem(x)).chunk(2, 1))
        for block in self.inner:
            parts.append(parts[-1] + block(parts[-1]))
        x = self.join(torch.cat(parts, 1))
        y = self.deep(x)
        up = functional.interpolate(y, scale_factor=2, mode="nearest")
        return [self.heads[0](self.side(torch.cat([up, x], 1))), self.heads[1](y)]


def _silu(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.SiLU()
    )


class Functional(nn.Module):
    """Weights that are used by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16)
        self.weight = nn.Parameter(torch.randn(16, 16) / 4)
        self.out = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(functional.linear(x, self.fc.weight, self.fc.bias))
        return self.out(functional.linear(x, self.weight))


class Experts(nn.Module):
    """A mixture whose experts lie in one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(16, 4), nn.Linear(16, 3)
        self.experts = nn.Parameter(torch.randn(4, 16, 16) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = self.gate(x).softmax(-1)
        each = torch.einsum("bi,eio->beo", x, self.experts)
        return self.head((share.unsqueeze(-1) * each).sum(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.inner: Any = kind(16, 16, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(self.embed(ids))[0][:, -1])


class Branching(nn.Module):
    """The way depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.a(x) if float(x.sum()) > 0 else self.b(x))


class Looping(nn.Module):
    """One layer, used again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(self.layer(x)) + x
        return self.head(x)


class OneBatch(nn.Module):
    """forward takes the loader's whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"score": self.net(batch["x"] + batch["offset"])}


class WithContext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(8, 16)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        x = self.a(x)
        return x if context is None else x + self.b(context)


Point = namedtuple("Point", ["x", "y"])


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 8), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Point:
        return Point(self.a(x), self.b(y))


class GraphNet(nn.Module):
    """Messages along edges, summed where they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update, self.head = (
            nn.Linear(16, 16),
            nn.Linear(16, 16),
            nn.Linear(16, 3),
        )

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        sent = self.message(x)[edges[0]]
        x = torch.relu(self.update(torch.zeros_like(x).index_add(0, edges[1], sent)))
        return self.head(x)


class Adapted(nn.Module):
    """A linear with a low-rank addition beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(16, 16)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2.0 * self.up(self.down(x))


class SharedTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.first = nn.Sequential(*self.base[:2])
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.first(x)).mean((2, 3)))


class Normalized(nn.Module):
    """Weights made from others at each call, old style and new."""

    def __init__(self) -> None:
        super().__init__()
        self.old = nn.utils.weight_norm(nn.Conv1d(4, 8, 3))
        self.new = nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 8, 3))
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.spectral(self.new(torch.relu(self.old(x))).mean(-1))


class Compiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = torch.jit.script(nn.Sequential(nn.Linear(16, 16), nn.ReLU()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv3d(2, 8, 3, padding=1)
        self.up = nn.ConvTranspose3d(8, 4, 2, 2)
        self.wide = nn.Conv3d(4, 4, 3, dilation=2, padding=2, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wide(self.up(torch.relu(self.down(x))))


def vectors(*sizes: int) -> Callable[[], Any]:
    return lambda: (
        tuple(torch.randn(4, size) for size in sizes) if len(sizes) > 1 else torch.randn(4, *sizes)
    )


def images(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randn(*shape)


def _linears() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))


# Name → the module and one batch of a loader.
NETS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "u-net": (UNet, images(2, 3, 32, 32)),
    "yolo-like": (YoloLike, images(2, 3, 32, 32)),
    "functional weights": (Functional, vectors(16)),
    "experts in one parameter": (Experts, vectors(16)),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randint(0, 50, (4, 9))),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randint(0, 50, (4, 9))),
    "data-dependent branch": (Branching, vectors(16)),
    "one layer, four times": (Looping, vectors(16)),
    "forward(batch)": (OneBatch, lambda: {"x": torch.randn(4, 16), "offset": torch.randn(4, 16)}),
    "forward(x, context=None)": (WithContext, vectors(16, 8)),
    "named tuples": (Named, lambda: Point(torch.randn(4, 16), torch.randn(4, 4))),
    "graph net": (GraphNet, lambda: (torch.randn(6, 16), torch.randint(0, 6, (2, 12)))),
    "low-rank adapter": (Adapted, vectors(16)),
    "one module, two names": (SharedTwice, images(2, 3, 12, 12)),
    "weight norms": (Normalized, images(4, 4, 16)),
    "a TorchScript part": (Compiled, vectors(16)),
    "3-D": (Volume, images(1, 2, 6, 6, 6)),
    "float16": (lambda: _linears().half(), lambda: torch.randn(4, 16).half()),
    "bfloat16": (lambda: _linears().bfloat16(), lambda: torch.randn(4, 16).bfloat16()),
    "float64": (lambda: _linears().double(), lambda: torch.randn(4, 16).double()),
    "no batch dimension": (_linears, lambda: torch.randn(16)),
    "attention": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2),
        images(2, 5, 16),
    ),
    "encoder and decoder": (
        lambda: nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
        lambda: (torch.randn(2, 5, 16), torch.randn(2, 4, 16)),
    ),
    "one linear": (lambda: nn.Linear(16, 4), vectors(16)),
    "nothing to quantize": (lambda: nn.Sequential(nn.ReLU(), nn.LayerNorm(16)), vectors(16)),
}
