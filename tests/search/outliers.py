"""MiniLM with channels behind its norms made far larger than the others: the same function in FP32.

The norms of BERT stand behind the sums, so a norm's output goes to layers and to the next sum. The
layers' weights are divided by the channel's factor; what goes to the sum is divided on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from usage.exports import TEXT_INPUTS, bert, folder

SMALLEST, LARGEST = 30.0, 100.0


class Undone(nn.Module):
    """The end of a block, whose second input is divided before it is added."""

    def __init__(self, inner: nn.Module, factors: torch.Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("share", 1.0 / factors)

    def forward(self, made: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        return self.inner(made, stream * self.share)


def plain_minilm() -> Any:
    return bert(folder("minilm_l6_mrpc"), folder("minilm_l6_bert"), "BertForSequenceClassification")


def torn_minilm(seed: int = 0, channels: int = 6) -> Any:
    """Every norm torn, each at other channels."""
    net, rng = plain_minilm(), np.random.default_rng(seed)
    norm = net.bert.embeddings.LayerNorm
    with torch.no_grad():
        for layer in net.bert.encoder.layer:
            heads = layer.attention.self
            factors = _factors(rng, channels, norm.weight.numel())
            _tear(norm, [heads.query, heads.key, heads.value], factors)
            norm = layer.attention.output.LayerNorm
            layer.attention.output = Undone(layer.attention.output, factors)
            factors = _factors(rng, channels, norm.weight.numel())
            _tear(norm, [layer.intermediate.dense], factors)
            norm = layer.output.LayerNorm
            layer.output = Undone(layer.output, factors)
        _tear(norm, [net.bert.pooler.dense], _factors(rng, channels, norm.weight.numel()))
    return net


def _factors(rng: np.random.Generator, channels: int, size: int) -> torch.Tensor:
    factors = np.ones(size, np.float32)
    chosen = rng.choice(size, channels, replace=False)
    factors[chosen] = rng.uniform(SMALLEST, LARGEST, channels)
    return torch.from_numpy(factors)


def _tear(norm: nn.LayerNorm, readers: list[nn.Linear], factors: torch.Tensor) -> None:
    norm.weight *= factors
    norm.bias *= factors
    for reader in readers:
        reader.weight /= factors


def export(net: nn.Module, path: Path) -> Path:
    torch.onnx.export(
        net,
        tuple(torch.ones(2, 16, dtype=torch.int64) for _ in TEXT_INPUTS),
        str(path),
        input_names=list(TEXT_INPUTS),
        output_names=["logits"],
        dynamic_axes={key: {0: "n", 1: "tokens"} for key in TEXT_INPUTS} | {"logits": {0: "n"}},
        opset_version=17,
        dynamo=False,
    )
    return path


def pairs(split: str, count: int, size: int = 24) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """MRPC as the tokenizer of MiniLM writes it, and its labels."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder("minilm_l6_bert"))
    text = (folder("glue") / "MRPC" / f"{split}.tsv").read_text("utf-8-sig")
    rows = [line.split("\t") for line in text.splitlines()[1 : count + 1]]
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        words = tokenizer(
            [row[3] for row in part],
            [row[4] for row in part],
            padding=True,
            truncation=True,
            max_length=128,
            return_tensors="np",
        )
        yield dict(words), np.array([int(row[0]) for row in part])
