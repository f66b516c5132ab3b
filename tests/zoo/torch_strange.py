"""Nets as strangers write them: what forward asks and does, and how torch runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from zoo.torch_batches import Inner, image, mlp, vector


class Features(nn.Module):
    """Asks its layers what they are, in code that can't be read: a way depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.ReLU())

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for layer in self.layers if float(x.sum()) < 1e9 else ():
            x = layer(x)
            if isinstance(layer, nn.Conv2d):
                assert layer.weight.shape[0] == x.shape[1] and layer.kernel_size == (3, 3)
                found.append(x)
        return found


class Padded(nn.Module):
    """torch's encoder fills what is padded with zeros where it can, and all of it is read."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x, src_key_padding_mask=padding).mean(1))


class OtherBias(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = {"0.bias": self.net[0].bias * 2}
        return torch.func.functional_call(self.net, given, (x,))


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = mlp(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.vmap(self.each)(x))


class Either(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ways = (lambda x: self.a(x)), (lambda x: self.b(x))
        return self.head(torch.cond(x.sum() > 0, *ways, (x,)))


class CompiledForward(Inner):
    @torch.compile(backend="eager")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Forgetful(Inner):
    """Its train() returns nothing."""

    def train(self, mode: bool = True) -> Any:
        super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Signed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        return self.b(0.1 * Sign.apply(y - 10) + torch.relu(y))


class Graph(Inner):
    """Keeps a tensor with its graph from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.last: torch.Tensor | None = None
        self(torch.randn(2, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.net(x)
        return self.last


class Numpy(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net[2](torch.from_numpy(np.tanh(self.net[0](x).detach().numpy())))


class ThreeNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.stages = nn.ModuleList([self.base, nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU())])
        self.last = self.stages[1][0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            x = stage(x)
        return self.last(x)


class Edges(nn.Module):
    """Padding of every mode, and a tensor that is no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 5, padding=2, padding_mode="circular")
        self.b = nn.Conv2d(8, 8, 3, padding="same", padding_mode="reflect", groups=2)
        self.c = nn.Conv2d(8, 4, 3, padding=1, padding_mode="replicate")
        self.gain = torch.rand(8, 1, 1) + 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.relu(self.b(torch.relu(self.a(x)) * self.gain)))


def _up() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(4, 8, (1, 3), (1, 2), bias=False),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(0.1),
        nn.ConvTranspose2d(8, 6, 4, 3, padding=1, output_padding=2, dilation=2, groups=2),
    )


def _normed() -> nn.Module:
    return nn.Sequential(
        parametrizations.spectral_norm(nn.Conv2d(3, 8, 3)),
        nn.ReLU(),
        parametrizations.weight_norm(nn.ConvTranspose2d(8, 4, 2, 2), dim=1),
    )


def _in_inference() -> nn.Module:
    with torch.inference_mode():
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1))


class Exported(nn.Module):
    """A bit of everything that torch.export writes as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.group = nn.Conv2d(8, 8, 3, padding="same", groups=2)
        self.up, self.linear, self.last = (
            nn.ConvTranspose2d(8, 8, 2, 2),
            nn.Linear(8, 4),
            nn.LayerNorm(4),
        )
        self.table = nn.Embedding(5, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        y = functional.relu_(self.norm(self.conv(x)))
        y = self.group(y + self.group(y))
        y = self.last(self.linear(self.up(functional.max_pool2d(y, 2)).mean((2, 3))))
        return {"y": y + self.table(ids).sum(1), "z": functional.linear(y, self.table.weight)}


class LeNet(nn.Module):
    """A view of what a convolution gives, as in every tutorial."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.last = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 3), nn.Linear(8 * 16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.b(torch.relu(self.a(x)))).view(-1, 8 * 16))


class OwnSummand(nn.Module):
    """x + conv(x), and inputs given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(input=x)
        return self.last(input=x + self.b(x))


def _exported() -> Any:
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    given = (torch.randn(2, 3, 8, 8), torch.randint(0, 5, (2, 6)))
    return torch.export.export(Exported().eval(), given, dynamic_shapes=(batch, batch))


_PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [False] * 3 + [True] * 3])

NETS: Mapping[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "isinstance in forward": (Features, image),
    "padding in an encoder": (
        Padded,
        lambda: {"x": torch.randn(3, 6, 16), "padding": _PADDING.clone()},
    ),
    "functional_call": (OtherBias, vector),
    "vmap": (Mapped, lambda: torch.randn(3, 4, 16)),
    "torch.cond": (Either, vector),
    "a compiled forward": (CompiledForward, vector),
    "train() without a result": (Forgetful, vector),
    "a custom autograd function": (Signed, image),
    "a tensor kept with its graph": (Graph, vector),
    "numpy inside": (Numpy, vector),
    "one module, three names": (ThreeNames, image),
    "padding of every mode": (Edges, image),
    "odd transposed convolutions": (_up, lambda: torch.randn(2, 4, 5, 6)),
    "norms of weights by parametrization": (_normed, image),
    "a graph module": (
        lambda: torch.fx.symbolic_trace(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())),
        image,
    ),
    "made in inference mode": (_in_inference, image),
    "an exported program": (
        _exported,
        lambda: (torch.randn(2, 3, 8, 8), torch.randint(0, 5, (2, 6))),
    ),
    "a scripted part": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), torch.jit.script(nn.Conv2d(8, 8, 3)), nn.Conv2d(8, 4, 1)
        ),
        image,
    ),
    "a view after convolutions": (LeNet, image),
    "x + conv(x)": (OwnSummand, image),
    "a TorchScript module": (lambda: torch.jit.script(mlp().eval()), vector),
    "complex weights": (
        lambda: nn.Linear(8, 8, dtype=torch.cfloat),
        lambda: torch.randn(4, 8, dtype=torch.cfloat),
    ),
}
