"""Nets with habits: how they are called, wrapped, kept and what they give back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def _mlp(inside: int = 16, outside: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, 32), nn.GELU(), nn.Linear(32, outside))


def _cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


class Inner(nn.Module):
    """Holds a net; most classes here differ in how they call it."""

    def __init__(self, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = net or _mlp()


class KeywordsOnly(Inner):
    def forward(self, *, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.net(x) * scale


class AnyArguments(Inner):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.net(*args, **kwargs)


class Counting(Inner):
    """Buffers that change with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.net(x)


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None
    name: str = "answer"


class Dataclass(Inner):
    def forward(self, x: torch.Tensor) -> Answer:
        return Answer(self.net(x))


class Nested(Inner):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = self.net(x)
        return {"heads": [{"box": y[:, :2]}, {"box": y[:, 2:], "none": None}], "count": len(y)}


class Symmetric(nn.Module):
    """The parametrization of torch's own tutorial."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).transpose(-1, -2)


class Parametrized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.utils.parametrize.register_parametrization(
            nn.Linear(16, 16), "weight", Symmetric()
        )
        self.b = nn.utils.parametrizations.orthogonal(nn.Linear(16, 16))
        self.c = nn.utils.spectral_norm(nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(50, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mix(self.embed(ids))))


class Lora(nn.Module):
    """Around a frozen linear, as an attribute of another class."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / 8)
        self.b = nn.Parameter(torch.randn(base.out_features, rank) / 8)

    @property
    def weight(self) -> torch.Tensor:
        return self.base.weight + self.b @ self.a

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


class Fourier(nn.Module):
    """Complex numbers between linears, and complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 4)
        self.filter = nn.Parameter(torch.randn(9, dtype=torch.cfloat) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(self.a(x)) * self.filter
        return self.b(torch.fft.irfft(spectrum, n=16))


class NoGrad(Inner):
    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class InferenceMode(Inner):
    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Autocast(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.net(x)


class Checkpointed(Inner):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.net, x, use_reentrant=False)


class Remembers(Inner):
    """A hidden state from call to call, as streaming models have it."""

    def __init__(self) -> None:
        super().__init__(_mlp(32))
        self.state: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = torch.zeros_like(x) if self.state is None else self.state
        self.state = torch.tanh(x).detach()
        return self.net(torch.cat([x, 0 * before], -1))


class Wrapper(Inner):
    """Passes what it does not know to what it holds, as peft and accelerate do."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("net"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.net(*args, **kwargs)


class OwnLinear(nn.Linear):
    """A subclass with a forward of its own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return functional.linear(input, self.weight / self.weight.norm(dim=1, keepdim=True))


class StandardConv(nn.Conv2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(input, weight, self.bias)


class Pixels(Inner):
    """Bytes in, as cameras give them."""

    def __init__(self) -> None:
        super().__init__(_cnn())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.float() / 255)


class Options(Inner):
    """Flags, numbers and words among the inputs."""

    def forward(
        self, x: torch.Tensor, times: int = 1, mode: str = "add", double: bool = False
    ) -> torch.Tensor:
        y = self.net(x) * times
        return y + y if double or mode == "twice" else y


class ListIn(Inner):
    def forward(self, xs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [self.net(x) for x in xs]


class TopK(nn.Module):
    """Experts that see only the rows sent to them: some see none."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 8)
        self.experts = nn.ModuleList(_mlp(16, 16) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share, chosen = self.gate(x).softmax(-1).topk(2)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            y[row] += share[row, place, None] * expert(x[row])
        return y


class Empty(Inner):
    """Finds nothing in some batches: its head runs on no rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x[x[:, 0] > 0])


class TrainingOnly(nn.Module):
    """Auxiliary heads that run in training alone."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.aux = _mlp(16, 16), nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.body(x)
        return (self.head(x), self.aux(x)) if self.training else self.head(x)


class Hooked(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, torch.Tensor] = {}
        self.net[0].register_forward_hook(lambda m, a, o: self.kept.update(first=o))
        self.net[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) + self.kept["first"].mean()


class OddNames(nn.Module):
    """Names that the classes of torch use themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Linear(16, 16)
        self.scale, self.parts = nn.Linear(16, 16), nn.ModuleDict({"keys_": nn.Linear(16, 4)})
        self.settings = {"a": 1}

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.parts["keys_"](torch.relu(self.scale(self.weight(input))))


class Frozen(Inner):
    def __init__(self) -> None:
        super().__init__(_cnn())
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Lazy(nn.Module):
    """Layers whose sizes the first batch decides."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.LazyConv2d(8, 3), nn.LazyLinear(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)).flatten(1))


class Parameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ParameterList(torch.randn(16, 16) / 4 for _ in range(2))
        self.bilinear = nn.Bilinear(16, 16, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ self.steps[0]
        return self.head(self.bilinear(torch.relu(y), x @ self.steps[1]))


class InPlace(nn.Module):
    """Views that are written to, sums in place."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        y[:, :4] += x
        z = functional.relu_(self.b(y))
        z.mul_(0.5).add_(y)
        return z


def _quantized_inside() -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, 16),
        torch.ao.quantization.quantize_dynamic(
            nn.Sequential(nn.Linear(16, 16)), {nn.Linear}, dtype=torch.qint8
        ),
    )


def _rows(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randn(*shape)


_VECTOR, _IMAGE = _rows(4, 16), _rows(2, 3, 12, 12)

NETS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "keywords only": (
        KeywordsOnly,
        lambda: {"x": torch.randn(4, 16), "scale": torch.rand(4, 1) + 1},
    ),
    "forward(*args, **kwargs)": (AnyArguments, _VECTOR),
    "buffers that change": (Counting, _VECTOR),
    "a dataclass out": (Dataclass, _VECTOR),
    "nested outputs": (Nested, _VECTOR),
    "parametrizations": (Parametrized, _VECTOR),
    "tied embedding and head": (Tied, lambda: torch.randint(0, 50, (4, 9))),
    "LoRA around a frozen linear": (
        lambda: nn.Sequential(Lora(nn.Linear(16, 16)), nn.ReLU(), Lora(nn.Linear(16, 4))),
        _VECTOR,
    ),
    "complex numbers": (Fourier, _VECTOR),
    "no_grad on forward": (NoGrad, _VECTOR),
    "inference_mode on forward": (InferenceMode, _VECTOR),
    "autocast in forward": (Autocast, _VECTOR),
    "checkpointing": (Checkpointed, _VECTOR),
    "a state from call to call": (Remembers, _VECTOR),
    "a wrapper with __getattr__": (Wrapper, _VECTOR),
    "subclass of Linear": (lambda: nn.Sequential(OwnLinear(16, 16), nn.Linear(16, 4)), _VECTOR),
    "subclass of Conv2d": (lambda: nn.Sequential(StandardConv(3, 8, 3), nn.ReLU()), _IMAGE),
    "bytes in": (Pixels, lambda: torch.randint(0, 256, (2, 3, 12, 12), dtype=torch.uint8)),
    "options among the inputs": (
        Options,
        lambda: {"x": torch.randn(4, 16), "times": 2, "mode": "twice"},
    ),
    "a list in, a list out": (ListIn, lambda: [torch.randn(4, 16), torch.randn(2, 16)]),
    "experts with few rows": (TopK, _VECTOR),
    "heads without rows": (Empty, _VECTOR),
    "auxiliary heads": (TrainingOnly, _VECTOR),
    "hooks of its own": (Hooked, _VECTOR),
    "names that torch uses": (OddNames, _VECTOR),
    "frozen": (Frozen, _IMAGE),
    "lazy layers": (Lazy, _IMAGE),
    "parameters in a list, bilinear": (Parameters, _VECTOR),
    "in place": (InPlace, _rows(2, 4, 8, 8)),
    "torch.compile": (lambda: torch.compile(_mlp(), backend="eager"), _VECTOR),
    "DataParallel": (lambda: nn.DataParallel(_cnn()), _IMAGE),
    "traced": (lambda: torch.jit.trace(_mlp().eval(), torch.randn(4, 16)), _VECTOR),
    "quantized by torch": (_quantized_inside, _VECTOR),
    "on the meta device": (lambda: nn.Linear(16, 4, device="meta"), _VECTOR),
    "channels last": (lambda: _cnn().to(memory_format=torch.channels_last), _IMAGE),
    "a batch of one": (_cnn, _rows(1, 3, 12, 12)),
    "one feature": (
        lambda: nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1)),
        _rows(4, 1),
    ),
    "bfloat16 convolutions": (
        lambda: _cnn().bfloat16(),
        lambda: torch.randn(2, 3, 12, 12).bfloat16(),
    ),
    "half convolutions": (lambda: _cnn().half(), lambda: torch.randn(2, 3, 12, 12).half()),
    "double convolutions": (lambda: _cnn().double(), lambda: torch.randn(2, 3, 12, 12).double()),
    "tiny values": (
        lambda: nn.Sequential(nn.Linear(16, 16, bias=False), nn.Linear(16, 4, bias=False)),
        lambda: 1e-25 * torch.randn(4, 16),
    ),
    "large values": (
        lambda: nn.Sequential(nn.Linear(16, 16, bias=False), nn.Linear(16, 4, bias=False)),
        lambda: 1e25 * torch.randn(4, 16),
    ),
}
