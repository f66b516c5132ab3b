"""Families of nets in a few lines each: generators, diffusion, detection by queries, scans."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional


def generator() -> nn.Module:
    """DCGAN's."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False)]
    for inside, outside in ((32, 16), (16, 8)):
        layers += [nn.BatchNorm2d(inside), nn.ReLU(True)]
        layers += [nn.ConvTranspose2d(inside, outside, 4, 2, 1, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(8), nn.ReLU(True), nn.Conv2d(8, 3, 3), nn.Tanh())


class Residual(nn.Module):
    """Two convolutions with group norms and a time embedding between them."""

    def __init__(self, inside: int, outside: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inside), nn.GroupNorm(4, outside)
        self.conv1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.time = nn.Linear(time, outside)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(functional.silu(self.norm1(x)))
        y = y + self.time(functional.silu(time))[:, :, None, None]
        return self.conv2(functional.silu(self.norm2(y))) + self.skip(x)


class Denoiser(nn.Module):
    """A U-Net of diffusion: time, text by cross-attention, skips."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first = nn.Conv2d(4, 16, 3, padding=1)
        self.down, self.middle, self.up = (
            Residual(16, 32, 16),
            Residual(32, 32, 16),
            Residual(48, 16, 16),
        )
        self.shrink = nn.Conv2d(32, 32, 3, 2, 1)
        self.attend = nn.MultiheadAttention(32, 4, kdim=24, vdim=24, batch_first=True)
        self.last = nn.Conv2d(16, 4, 3, padding=1)

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, text: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        angles = timestep.float()[:, None] * torch.exp(-torch.arange(4) * math.log(10) / 4)
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        a = self.first(sample)
        b = self.middle(self.shrink(self.down(a, time)), time)
        flat = b.flatten(2).transpose(1, 2)
        flat = flat + self.attend(flat, text, text)[0]
        b = flat.transpose(1, 2).reshape(b.shape)
        b = functional.interpolate(b, scale_factor=2)
        return {"sample": self.last(functional.silu(self.up(torch.cat([b, a], 1), time)))}


class Queries(nn.Module):
    """DETR's: a backbone, a transformer, learnt queries, boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1)
        )
        self.transformer = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        self.queries = nn.Parameter(torch.rand(5, 32))
        self.row, self.column = nn.Parameter(torch.rand(50, 16)), nn.Parameter(torch.rand(50, 16))
        self.boxes, self.kinds = nn.Linear(32, 4), nn.Linear(32, 7)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.backbone(x)
        high, wide = x.shape[-2:]
        place = torch.cat(
            [
                self.column[:wide].unsqueeze(0).repeat(high, 1, 1),
                self.row[:high].unsqueeze(1).repeat(1, wide, 1),
            ],
            -1,
        )
        x = x.flatten(2).transpose(1, 2) + place.flatten(0, 1)
        y = self.transformer(x, self.queries.expand(len(x), -1, -1))
        return {"boxes": self.boxes(y).sigmoid(), "kinds": self.kinds(y)}


class Prompted(nn.Module):
    """SAM's: an image encoder, points as prompts, masks by a product with up-convolved features."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 4, 4)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
        self.register_buffer("gauss", torch.randn(2, 16))
        self.labels = nn.Embedding(2, 32)
        self.cross = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 2, 2), nn.GELU(), nn.ConvTranspose2d(16, 8, 2, 2)
        )
        self.kernel = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(
        self, image: torch.Tensor, points: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        x = self.patch(image)
        shape, flat = x.shape, self.encoder(x.flatten(2).transpose(1, 2))
        angles = 2 * math.pi * points @ self.gauss
        tokens = torch.cat([angles.sin(), angles.cos()], -1) + self.labels(labels)
        tokens = tokens + self.cross(tokens, flat, flat)[0]
        masks = self.up(flat.transpose(1, 2).reshape(shape)).flatten(2)
        return self.kernel(tokens) @ masks


class Scan(nn.Module):
    """A selective state space: one step after the other."""

    def __init__(self, width: int = 16, state: int = 4) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.select = nn.Linear(width, 2 * state + 1)
        self.decay = nn.Parameter(torch.rand(width, state).log())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, gate = self.into(x).chunk(2, -1)
        x = functional.silu(self.conv(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, b, c = self.select(x).split([1, 4, 4], -1)
        step = functional.softplus(step)
        hidden, found = torch.zeros(len(x), x.shape[2], 4), []
        for at in range(x.shape[1]):
            change = step[:, at, :, None]
            hidden = (
                hidden * torch.exp(-change * self.decay.exp())
                + change * x[:, at, :, None] * b[:, at, None]
            )
            found.append((hidden * c[:, at, None]).sum(-1))
        return self.out(torch.stack(found, 1) * functional.silu(gate))


class Cells(nn.Module):
    """A loop over cells, as captions are written."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.head = nn.LSTMCell(8, 16), nn.GRUCell(16, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = g = torch.zeros(len(x), 16)
        for step in x.unbind(1):
            h, c = self.lstm(step, (h, c))
            g = self.gru(h, g)
        return self.head(g)


class Packed(nn.Module):
    """Sentences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True, proj_size=0)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        return self.head(self.lstm(packed)[1][0][-1])


class Encoded(nn.Module):
    """An autoencoder that draws its code."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(16, 8), nn.Linear(4, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, spread = self.encode(x).chunk(2, -1)
        return self.decode(mean + 0.1 * torch.randn_like(mean) * spread.exp()), mean, spread


class Towers(nn.Module):
    """Users and things, embeddings and crosses."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(30, 8, mode="sum") for _ in range(3))
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
        self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        all_ = torch.stack([x, *(t(sparse[:, i]) for i, t in enumerate(self.tables))], 1)
        cross = torch.bmm(all_, all_.transpose(1, 2))
        low, high = torch.tril_indices(4, 4, -1)
        return self.top(torch.cat([x, cross[:, low, high]], 1)).sigmoid()


class Points(nn.Module):
    """PointNet's: one net for every point, the largest of each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1)
        )
        self.turn = nn.Linear(32, 9)
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turn = self.turn(self.each(x).amax(-1)).reshape(-1, 3, 3)
        return self.head(self.each(torch.bmm(turn, x)).amax(-1))


class Wave(nn.Module):
    """WaveNet's dilated convolutions with gates."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 16, 1)
        self.filters = nn.ModuleList(
            nn.Conv1d(16, 32, 2, dilation=2**i, padding=2**i) for i in range(3)
        )
        self.skips = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(3))
        self.last = nn.ConvTranspose1d(16, 1, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, total = self.first(x), 0
        for part, skip in zip(self.filters, self.skips, strict=True):
            a, b = part(x)[..., : x.shape[-1]].chunk(2, 1)
            y = a.tanh() * b.sigmoid()
            total = total + skip(y)
            x = x + y
        return self.last(total)


class Volumes(nn.Module):
    """A 3-D U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.InstanceNorm3d(8), nn.LeakyReLU())
        self.b = nn.Sequential(nn.Conv3d(8, 16, 3, 2, 1), nn.BatchNorm3d(16), nn.PReLU())
        self.up, self.c = nn.ConvTranspose3d(16, 8, 2, 2), nn.Conv3d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        return self.c(torch.cat([a, self.up(self.b(a))], 1))


class GraphAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift, self.score = nn.Linear(8, 16, bias=False), nn.Linear(32, 1)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.lift(x)
        source, target = edges
        score = functional.leaky_relu(self.score(torch.cat([x[source], x[target]], -1))).exp()
        total = torch.zeros(len(x), 1).index_add(0, target, score)
        mixed = torch.zeros_like(x).index_add(0, target, score * x[source])
        return self.head(mixed / total.clamp(min=1e-6))


class Adjacency(nn.Module):
    """A graph convolution with a sparse matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(matrix, self.b(torch.relu(torch.sparse.mm(matrix, self.a(x)))))


class Field(nn.Module):
    """SIREN's: coordinates in, sines between."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = torch.sin(5 * layer(x))
        return self.layers[-1](x)


class Enlarge(nn.Module):
    """ESPCN's, with reflected edges."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect")
        self.b = nn.Conv2d(16, 12, 3, padding="same", padding_mode="circular")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.pixel_shuffle(self.b(torch.tanh(self.a(x))), 2)


def _edges() -> torch.Tensor:
    return torch.randint(0, 6, (2, 14))


def _rows(*shape: int) -> Callable[[], Any]:
    return lambda: torch.randn(*shape)


NETS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "DCGAN generator": (generator, _rows(2, 16, 1, 1)),
    "diffusion U-Net": (
        Denoiser,
        lambda: (
            torch.randn(2, 4, 8, 8),
            torch.randint(0, 999, (2,)),
            torch.randn(2, 5, 24),
        ),
    ),
    "DETR-like": (Queries, _rows(2, 3, 32, 32)),
    "SAM-like": (
        Prompted,
        lambda: (torch.randn(2, 3, 32, 32), torch.rand(2, 3, 2), torch.randint(0, 2, (2, 3))),
    ),
    "selective scan": (Scan, _rows(2, 7, 16)),
    "LSTM and GRU cells": (Cells, _rows(3, 6, 8)),
    "packed sequences": (
        Packed,
        lambda: (torch.randn(3, 6, 8), torch.tensor([6, 3, 1])),
    ),
    "Elman RNN": (lambda: nn.RNN(8, 16, 2, batch_first=True), _rows(3, 6, 8)),
    "LSTM with projections": (lambda: nn.LSTM(8, 16, proj_size=4), _rows(6, 3, 8)),
    "variational autoencoder": (Encoded, _rows(4, 16)),
    "DLRM": (Towers, lambda: (torch.randn(4, 5), torch.randint(0, 30, (4, 3, 2)))),
    "PointNet": (Points, _rows(2, 3, 20)),
    "WaveNet": (Wave, _rows(2, 1, 32)),
    "3-D U-Net": (Volumes, _rows(1, 1, 8, 8, 8)),
    "graph attention": (GraphAttention, lambda: (torch.randn(6, 8), _edges())),
    "sparse adjacency": (
        Adjacency,
        lambda: (torch.randn(6, 8), (torch.rand(6, 6) > 0.5).float().to_sparse()),
    ),
    "SIREN": (Field, lambda: torch.rand(20, 2)),
    "ESPCN": (Enlarge, _rows(1, 3, 10, 10)),
}
