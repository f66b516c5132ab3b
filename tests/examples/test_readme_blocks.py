"""The Python that the examples' READMEs show, run on models of a few hundred weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from doc_blocks import blocks
from tiny_bert import PYTORCH, without_speed


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    without_speed(monkeypatch)


def shown(example: str) -> list[str]:
    page = PYTORCH / example / "README.md"
    return [block.text for block in blocks(page) if block.language == "python"]


def tiny_bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return BertForSequenceClassification(
        BertConfig(vocab_size=30, intermediate_size=32, max_position_embeddings=16, **sizes)
    ).eval()


class Loader:
    """The `Bert_DataLoader` of the README: any class with `batch_size` that can be iterated."""

    def __init__(self, loader: Any, batch_size: int) -> None:
        self.loader, self.batch_size = loader, batch_size

    def __iter__(self) -> Any:
        yield from self.loader


def test_blendcnn(tmp_path: Path) -> None:
    (block,) = shown("blendcnn")
    shutil.copy(PYTORCH / "blendcnn" / "blendcnn.yaml", tmp_path)
    names: dict[str, Any] = {
        "Bert_DataLoader": Loader,
        "data_iter": [(torch.randn(2, 8), torch.zeros(2)) for _ in range(3)],
        "args": SimpleNamespace(batch_size=2, lpot_yaml="blendcnn.yaml"),
        "model": torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()),
        "eval_func": lambda model: 1.0,
    }
    exec(block, names)
    assert names["q_model"].recipe.low_ops


def test_bert(tmp_path: Path) -> None:
    loading, tuning = shown("language_translation")
    shutil.copy(PYTORCH / "language_translation" / "conf.yaml", tmp_path)
    tokens = torch.randint(0, 30, (8, 12))
    columns = (tokens, torch.ones_like(tokens), torch.zeros_like(tokens), torch.zeros(8))
    names: dict[str, Any] = {
        "eval_dataset": torch.utils.data.TensorDataset(*columns),
        "model": tiny_bert(),
        "evaluate": lambda model: 1.0,
    }
    exec(tuning, names)
    result = names["quantizer"].result
    assert result.met
    result.model.save("checkpoint/int8")
    exec(loading, names)
    logits = [model(tokens).logits for model in (names["model"], result.model.native)]
    assert torch.equal(*logits)
