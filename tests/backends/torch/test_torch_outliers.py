"""Outliers torn into a real transformer: one INT8 model, built without labels, must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lpot
from backends.torch.test_torch_models import BACKEND, default
from backends.torch.test_torch_real import accuracy, minilm, mrpc, needs
from lpot.core.recipe import Recipe

pytestmark = pytest.mark.slow


class Mended(nn.Module):
    """The sum behind a block, with the torn channels of its residual as they were."""

    def __init__(self, inner: nn.Module, inverse: torch.Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("inverse", inverse)

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(hidden, residual * self.inverse)
        return found


def tear(norm: nn.LayerNorm, readers: list[nn.Linear], draw: np.random.Generator) -> torch.Tensor:
    """Three to six channels 30 to 100 times as large; gives the inverse for the residual."""
    count = int(draw.integers(3, 7))
    factors = torch.ones(norm.weight.numel())
    channels = torch.from_numpy(draw.choice(len(factors), count, replace=False))
    factors[channels] = torch.from_numpy(draw.uniform(30, 100, count).astype(np.float32))
    with torch.no_grad():
        norm.weight *= factors
        norm.bias *= factors
        for reader in readers:
            reader.weight /= factors
    return 1.0 / factors


def torn_bert(module: Any, seed: int) -> nn.Module:
    """Every layer norm of the encoder torn; the function stays the same but for rounding."""
    draw = np.random.default_rng(seed)
    layers = list(module.bert.encoder.layer)
    norm = module.bert.embeddings.LayerNorm
    for layer in layers:
        own = layer.attention.self
        inverse = tear(norm, [own.query, own.key, own.value], draw)
        norm = layer.attention.output.LayerNorm
        layer.attention.output = Mended(layer.attention.output, inverse)
        inverse = tear(norm, [layer.intermediate.dense], draw)
        norm = layer.output.LayerNorm
        layer.output = Mended(layer.output, inverse)
    tear(norm, [module.bert.pooler.dense], draw)
    return module


@pytest.mark.parametrize("seed", [0, 1])
def test_torn_minilm_is_met_in_three_evaluations(seed: int, tmp_path: Path) -> None:
    needs("glue")
    module, tokenizer = minilm("mrpc", "BertForSequenceClassification")
    plain = BACKEND.load(module)
    batches = list(mrpc(tokenizer, "dev", 408))
    truth = accuracy(plain, batches)
    torn = torn_bert(module, seed)
    calibration = [inputs for inputs, _ in mrpc(tokenizer, "train", 96)]

    def evaluate(native: Any) -> float:
        with torch.no_grad():
            right = [native(**x).logits.argmax(1).numpy() == labels for x, labels in batches]
        return float(np.mean(np.concatenate(right)))

    result = lpot.tune(
        torn, calibration, evaluate, 0.01, strategy="basic", measure_speed=False, workspace=tmp_path
    )
    assert result.baseline.accuracy == pytest.approx(truth, abs=0.005)
    assert result.met
    assert result.evaluations <= 3
    assert not result.float_ops
    # Without the advice it would have been far off.
    model = BACKEND.load(torn)
    observations = BACKEND.observe(model, calibration, (0,))[0]
    blunt = BACKEND.build(model, Recipe(default(model).ops), observations)
    assert accuracy(blunt, batches) < 0.97 * truth
