"""Nets by what goes in and comes out: anything that a loader may yield and a forward return."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import rnn


def mlp(inside: int = 16, outside: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, 32), nn.GELU(), nn.Linear(32, outside))


class Inner(nn.Module):
    def __init__(self, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = net or mlp()


@dataclasses.dataclass
class Sample:
    x: torch.Tensor
    mask: torch.Tensor
    label: torch.Tensor | None = None


class OfSample(Inner):
    def forward(self, batch: Sample) -> torch.Tensor:
        return self.net(batch.x) * batch.mask


class OfFields(Inner):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.net(x) * mask


class Optional(Inner):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = self.net(x)
        return y if mask is None else y * mask


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.head = nn.GRU(8, 16, bidirectional=True), nn.Linear(32, 4)

    def forward(self, sequences: rnn.PackedSequence) -> torch.Tensor:
        return self.head(rnn.pad_packed_sequence(self.net(sequences)[0], batch_first=True)[0])


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.net = nn.EmbeddingBag(256, 16), mlp()

    def forward(self, texts: list[str]) -> torch.Tensor:
        ids = [torch.tensor(list(text.encode())) for text in texts]
        starts = torch.tensor([0] + [len(item) for item in ids[:-1]]).cumsum(0)
        return self.net(self.table(torch.cat(ids), starts))


class Tree(nn.Module):
    """Recursion over a tree of tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf, self.join = nn.Linear(8, 16), nn.Linear(32, 16)

    def forward(self, tree: Any) -> torch.Tensor:
        if isinstance(tree, torch.Tensor):
            return torch.tanh(self.leaf(tree))
        return torch.tanh(self.join(torch.cat([self(tree[0]), self(tree[1])], -1)))


class Sizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, 2), nn.Linear(8, 4)

    def forward(self, images: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([self.head(self.conv(image[None]).mean((2, 3))) for image in images])


class Result:
    """Neither a tuple nor a dataclass."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


class GivesResult(Inner):
    def forward(self, x: torch.Tensor) -> Result:
        return Result(self.net(x))


class InPlace(nn.Module):
    """Writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.sub_(0.5).mul_(3.0)
        return self.head(self.conv(x).mean((2, 3)))


class Pops(Inner):
    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        return self.net(batch.pop("x"))


class Ragged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.head(row).mean(0) for row in self.each(rows).unbind()])


class Cached(nn.Module):
    """Keys and values of earlier calls come in and go out."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, past: Any = None) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        if past is not None:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        return x + self.out(functional.scaled_dot_product_attention(q, k, v)), (k, v)


class Real(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(x).flatten(1)


def vector() -> torch.Tensor:
    return torch.randn(4, 16)


def image() -> torch.Tensor:
    return torch.randn(2, 3, 12, 12)


def _texts() -> list[str]:
    return [("one two", "three", "four five")[number] for number in torch.randint(0, 3, (4,))]


def _pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, 3, 16), torch.randn(2, 3, 16)


def _sample() -> Sample:
    return Sample(torch.randn(4, 16), torch.rand(4, 1) + 1)


NETS: Mapping[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "a dataclass in": (OfSample, _sample),
    "a dataclass by its fields": (OfFields, _sample),
    "keys that forward does not know": (
        Optional,
        lambda: {"x": vector(), "mask": torch.rand(4, 1) + 1, "id": torch.arange(4), "n": ["a"]},
    ),
    "a PackedSequence in": (
        Packed,
        lambda: rnn.pack_sequence([torch.randn(size, 8) for size in (6, 4, 2)]),
    ),
    "texts in": (Words, _texts),
    "texts and labels": (Words, lambda: (_texts(), torch.zeros(4).long())),
    "a tree of tuples in": (
        Tree,
        lambda: ((torch.randn(8), torch.randn(8)), (torch.randn(8), torch.randn(8))),
    ),
    "images of several sizes": (Sizes, lambda: [torch.rand(3, 10, 12), torch.rand(3, 14, 9)]),
    "an object out": (GivesResult, vector),
    "keys and values of the past": (
        Cached,
        lambda: {"x": torch.randn(2, 1, 16), "past": _pair()},
    ),
    "inputs written to": (InPlace, image),
    "a batch that loses its keys": (Pops, lambda: {"x": vector(), "id": 3}),
    "nested tensors": (
        Ragged,
        lambda: torch.nested.nested_tensor(
            [torch.randn(size, 16) for size in (3, 5)], layout=torch.jagged
        ),
    ),
    "NaN in the data": (mlp, lambda: torch.full((4, 16), torch.nan)),
    "data that do not fit": (mlp, lambda: torch.randn(4, 15)),
    "complex inputs": (
        lambda: nn.Sequential(Real(), nn.Linear(16, 4)),
        lambda: torch.randn(4, 8, dtype=torch.cfloat),
    ),
}
