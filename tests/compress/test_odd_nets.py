"""Structured pruning of nets built in unusual ways: joins, encoders, masks, up-sampling."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import lpot  # noqa: E402
from lpot.backends.torch.data import tensors  # noqa: E402
from lpot.backends.torch.prune.cut import removed, silenced  # noqa: E402
from lpot.backends.torch.prune.measure import find_blocks, sound_groups  # noqa: E402

DRAW = np.random.default_rng(0)
PICTURES = (DRAW.normal(size=(8, 3, 8, 8)).astype(np.float32),)
TOKENS = (DRAW.integers(0, 30, (8, 6)),)
PAIRS = (DRAW.normal(size=(8, 10)).astype(np.float32), DRAW.normal(size=(8, 6)).astype(np.float32))


class Branches(nn.Module):
    """One branch matters far less than the others: it must not lose all of its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.branches = nn.ModuleList(nn.Conv2d(16, width, 1) for width in (8, 24, 12))
        self.join, self.fc = nn.Conv2d(44, 16, 1), nn.Linear(16, 4)
        with torch.no_grad():
            self.join.weight[:, :8] *= 1e-4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.stem(x))
        x = torch.cat([functional.relu(branch(x)) for branch in self.branches], 1)
        return self.fc(functional.relu(self.join(x)).mean((2, 3)))


class Encoder(nn.Module):
    """torch's own encoder runs as one op in eval mode, and looks into its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.fc = nn.Linear(16, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.fc(self.layers(self.words(tokens)).mean(1))


class Masked(nn.Module):
    """Causal attention by hand, whose sum with its input is outside of the attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 16)
        self.layer = Causal()
        self.fc = nn.Linear(16, 30)

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.layer(self.words(tokens))
        return {"logits": self.fc(hidden), "hidden": hidden}


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Heads()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.down(functional.gelu(self.up(x)))


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 4
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], self.num_heads, 4)
        q, k, v = (each(x).view(shape).transpose(1, 2) for each in (self.q, self.k, self.v))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2)).masked_fill(later, -1e9)
        scores = torch.where(later, torch.tensor(-1e9), scores)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class UpAndDown(nn.Module):
    """A U-Net: pads, pools, transposed convolutions, and joins across."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 24, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(24, 16, 2, 2), nn.Conv2d(32, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = functional.relu(self.down(functional.pad(x, (1, 1, 1, 1))))
        low = functional.relu(self.low(functional.max_pool2d(high, 2)))
        return self.out(torch.cat([self.up(low), high], 1))


class Pair(nn.Module):
    """Two inputs, and an op that bfloat16's autocasting knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.both = nn.Linear(10, 16), nn.Linear(6, 16), nn.Bilinear(16, 16, 256)
        self.wide, self.fc = nn.Linear(256, 512), nn.Linear(512, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.fc(functional.relu(self.wide(self.both(self.a(x), self.b(y)))))


NETS = [(Branches, PICTURES), (Encoder, TOKENS), (Masked, TOKENS), (UpAndDown, PICTURES)]
FOUND = {
    Branches: {"stem": 16, "branches.0": 44, "join": 16},
    Encoder: {"layers.layers.0.linear1": 32, "layers.layers.1.linear1": 32},
    Masked: {"layer.attention.k": 4, "layer.up": 32},  # heads
    UpAndDown: {"down": 32, "low": 24},
}


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def outputs(net: nn.Module, inputs: tuple[np.ndarray, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        return list(tensors(net(*map(torch.tensor, inputs))))


@pytest.mark.parametrize(("kind", "inputs"), NETS, ids=lambda value: getattr(value, "__name__", ""))
def test_channels_are_found_and_any_of_them_go_exactly(kind: Any, inputs: Any) -> None:
    net = made(kind)
    groups = sound_groups(net, inputs)
    assert {group.name: group.units for group in groups} == FOUND[kind]
    for group in groups:
        gone = random.Random(0).sample(range(group.units), group.units // 2)
        kept = {group.name: tuple(sorted(set(range(group.units)) - set(gone)))}
        found = outputs(removed(net, [group], kept), inputs)
        for one, other in zip(found, outputs(silenced(net, group, gone), inputs), strict=True):
            assert torch.allclose(one, other, atol=1e-5), group.name


def test_a_transposed_convolution_knows_its_new_size() -> None:
    net = made(UpAndDown)
    low = next(group for group in sound_groups(net, PICTURES) if group.name == "low")
    small = removed(net, [low], {"low": (0, 1, 2)})
    assert (small.up.in_channels, small.up.out_channels) == (3, 16)


def test_a_layer_with_its_residual_is_a_block_and_what_breaks_the_rest_is_none() -> None:
    assert set(find_blocks(made(Masked), TOKENS)) == {"layer"}
    assert set(find_blocks(made(Encoder), TOKENS)) == {"layers.layers.1"}


@pytest.mark.parametrize(
    ("kind", "inputs"), [*NETS, (Pair, PAIRS)], ids=lambda value: getattr(value, "__name__", "")
)
def test_odd_nets_are_pruned_trained_saved_and_loaded(
    kind: Any, inputs: Any, tmp_path: Path
) -> None:
    net = made(kind)
    truth = outputs(net, inputs)

    def nearness(model: nn.Module) -> float:
        pairs = zip(outputs(model, inputs), truth, strict=True)
        return 1 / (1 + sum(float(functional.mse_loss(a.float(), b)) for a, b in pairs))

    raw = inputs if len(inputs) > 1 else inputs[0]
    result = lpot.tune(
        net,
        [raw, raw],
        nearness,
        lpot.Goal(absolute=1.0),
        really=True,
        config={"pruning": {"approach": {"structured": {"ratio": [0.9], "epochs": 1}}}},
        train_loader=[(raw, None)] * 2,
        workspace=tmp_path,
        measure_speed=False,
    )
    assert any(note.startswith("pruned 90%: ") for note in result.notes)
    again = lpot.load(result.path, module=made(kind))
    found = zip(outputs(again.native, inputs), outputs(result.model.native, inputs), strict=True)
    assert all(torch.equal(one, other) for one, other in found)
