"""Weights stored as float16, computed in float32: where asked for, or where there is no bf16."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
from safetensors.torch import load_file
from torch import nn

import lpot
from lpot.backends.torch import abilities
from lpot.experimental import MixedPrecision
from lpot.utils.pytorch import load


class Tied(nn.Module):
    """A table that is the head's weight, too; a recurrent layer and an encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(200, 32)
        self.rnn = nn.LSTM(32, 32, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 200)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found, _ = self.rnn(self.table(tokens))
        return self.head(self.encoder(found))


TOKENS = torch.arange(48).reshape(4, 12)


def made(word: str, net: nn.Module) -> MixedPrecision:
    door = MixedPrecision()
    door.model, door.precisions, door.measure_speed = net, word, False
    door()
    return door


@pytest.mark.parametrize("word", ["fp16", "bf16"])
def test_the_file_is_half_as_large(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(abilities, "has_bf16", lambda target="this": False)
    net = Tied().eval()
    door = made(word, net)
    assert door.result is not None
    model = door.result.model
    (note,) = [note for note in door.result.notes if "stored as fp16" in note]
    assert note.startswith("bf16 is not available" if word == "bf16" else "weights are stored")
    assert set(model.precisions.values()) == {"fp16"}
    full = sum(each.nbytes for each in net.parameters())
    assert model.nbytes < 0.55 * full
    folder = model.save(tmp_path / "half")
    assert (folder / "model.safetensors").stat().st_size < 0.6 * full
    again = lpot.load(folder, module=Tied())
    with torch.no_grad():
        given, same, wanted = (each(TOKENS) for each in (again.native, model.native, net))
    assert torch.equal(given, same)
    assert float((given - wanted).abs().max()) < 0.01 * float(wanted.abs().max())
    assert again.native.head.weight is again.native.table.weight  # still one
    assert all(each.dtype == torch.float32 for each in again.native.parameters())
    with torch.no_grad():
        assert torch.equal(load(str(folder), Tied())(TOKENS), given)
    twice = again.save(tmp_path / "twice")
    kinds = load_file(twice / "model.safetensors")
    (table,) = [value for value in kinds.values() if value.shape == (200, 32)]  # once
    assert table.dtype == torch.float16


def test_a_weight_that_is_shared_by_two_formats_comes_back_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is stored as float16; the head computes in bf16, or stays in FP32."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(abilities, "has_bf16", lambda target="this": True)
    for word, kept in (("bf16, fp16", {}), ("fp16", {"head": {"activation": {"dtype": ["fp32"]}}})):
        door = MixedPrecision(
            {
                "model": {"name": "tied", "framework": "pytorch"},
                "graph_optimization": {"precisions": word, "op_wise": kept},
            }
        )
        door.model, door.measure_speed = Tied().eval(), False
        model = door()
        became = {key.name: word for key, word in model.precisions.items()}
        assert became["table"] == "fp16" and became.get("head", "fp32") != "fp16"
        again = lpot.load(model.save(tmp_path / "saved"), module=Tied())
        assert torch.equal(again.native(TOKENS), model.native(TOKENS))


def test_what_float16_can_not_hold_stays_in_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))
    with torch.no_grad():
        net[0].weight.mul_(1e7)
        net[1].weight.mul_(1e-7)
    model = made("fp16", net).result.model
    became = {key.name: word for key, word in model.precisions.items()}
    assert became == {"0": "fp32", "1": "fp32", "2": "fp16"}
    assert torch.equal(model.native[1].weight, net[1].weight)
