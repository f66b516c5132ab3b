"""BlendCNN: convolutions over BERT's embeddings, what each layer found blended at the end."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn
from torch.ao.quantization import DeQuantStub, QuantStub, fuse_modules

EMBEDDINGS = ("word", "position", "token_type")


@dataclass(frozen=True)
class Shape:
    """All sizes of a net; they can be read off its weights."""

    vocabulary: int
    positions: int
    types: int
    width: int
    channels: int = 100
    layers: int = 8
    kernel: int = 5
    labels: int = 2

    @classmethod
    def of(cls, state: Mapping[str, torch.Tensor]) -> Shape:
        vocabulary, width = state["embed.word.weight"].shape
        channels, _, kernel = state["convs.0.0.weight"].shape
        layers = len({name.split(".")[1] for name in state if name.startswith("convs.")})
        return cls(
            vocabulary,
            len(state["embed.position.weight"]),
            len(state["embed.token_type.weight"]),
            width,
            channels,
            layers,
            kernel,
            len(state["classifier.weight"]),
        )

    def to_json(self) -> dict[str, int]:
        return asdict(self)


class Embeddings(nn.Module):
    """BERT's first layer, frozen: words, places and segments, normalized."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.positions, shape.width)
        self.token_type = nn.Embedding(shape.types, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=1e-12)

    def forward(self, input_ids: torch.Tensor, segment_ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        found = self.word(input_ids) + self.position(places) + self.token_type(segment_ids)
        return self.norm(found)


class BlendCNN(nn.Module):
    """Each layer's strongest answers, from all layers, decide. No stubs and no fusing needed."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.embed = Embeddings(shape)
        sizes = [shape.width] + [shape.channels] * shape.layers
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv1d(before, after, shape.kernel, padding="same"), nn.ReLU())
            for before, after in itertools.pairwise(sizes)
        )
        self.blend = nn.Linear(shape.channels * shape.layers, shape.channels)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(shape.channels, shape.labels)

    def forward(
        self, input_ids: torch.Tensor, segment_ids: torch.Tensor, input_mask: torch.Tensor
    ) -> torch.Tensor:
        x = self.embed(input_ids, segment_ids) * input_mask.unsqueeze(-1)
        x = x.transpose(1, 2)
        found = []
        for conv in self.convs:
            x = conv(x)
            found.append(x.amax(-1))
        blended = self.relu(self.blend(self.dropout(torch.cat(found, 1))))
        return self.classifier(self.dropout(blended))


class StubbedBlendCNN(BlendCNN):
    """The same net prepared by hand as PyTorch's own quantization wants it: stubs where numbers
    enter and leave int8, convolution and ReLU fused. lpot needs none of it and takes it, too."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__(shape, dropout)
        self.quant = QuantStub()
        self.dequant = DeQuantStub()

    def forward(
        self, input_ids: torch.Tensor, segment_ids: torch.Tensor, input_mask: torch.Tensor
    ) -> torch.Tensor:
        x = self.embed(input_ids, segment_ids) * input_mask.unsqueeze(-1)
        x = self.quant(x.transpose(1, 2))
        found = []
        for conv in self.convs:
            x = conv(x)
            found.append(x.amax(-1))
        blended = self.relu(self.blend(torch.cat(found, 1)))
        return self.dequant(self.classifier(blended))

    def fuse_model(self) -> None:
        for conv in self.convs:
            fuse_modules(conv, ["0", "1"], inplace=True)
        fuse_modules(self, ["blend", "relu"], inplace=True)


def new_like(shape: Shape, stubs: bool = False) -> BlendCNN:
    """An untrained net, with stubs and fused ops where asked for, ready to be filled and run."""
    net = (StubbedBlendCNN if stubs else BlendCNN)(shape).eval()
    if isinstance(net, StubbedBlendCNN):
        net.fuse_model()
    return net


def load_weights(path: Path, stubs: bool = False) -> BlendCNN:
    """The net of a model_final.pt, ready to run."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        net = (StubbedBlendCNN if stubs else BlendCNN)(Shape.of(state))
        net.load_state_dict(state)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, RuntimeError) as bad:
        raise SystemExit(
            f"error: {path} is no BlendCNN that classify.py --model_config wrote"
        ) from bad
    net.eval()
    if isinstance(net, StubbedBlendCNN):
        net.fuse_model()
    return net
