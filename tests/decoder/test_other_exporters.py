"""Decoders of families that have no writer here, as torch exports them with their cache."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.jobs.decoder.generate import generate

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "4.56", reason="caches of layers")

IDS = np.random.default_rng(0).integers(3, 97, (4, 32))
LAYERS, HEADS, SIZE = 2, 4, 16
TOKENS = {"vocab_size": 97, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SHAPE = {"n_embd": HEADS * SIZE, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64}


class Flat(torch.nn.Module):
    """A decoder whose cache is plain tensors, keys and values layer by layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> Any:
        cache = transformers.DynamicCache()
        for layer in range(LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        told = {"attention_mask": attention_mask, "position_ids": position_ids}
        found = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True, **told)
        parts = ((each.keys, each.values) for each in found.past_key_values.layers)
        return (found.logits, *(half for pair in parts for half in pair))


def exported(model: Any, path: Path) -> Path:
    past = [torch.zeros(2, HEADS, 5, SIZE) for _ in range(2 * LAYERS)]
    mask = torch.ones(2, 8, dtype=torch.long)
    places = torch.arange(5, 8).expand(2, 3).contiguous()
    halves = [f"{layer}.{half}" for layer in range(LAYERS) for half in ("key", "value")]
    pasts = [f"past_key_values.{each}" for each in halves]
    presents = [f"present.{each}" for each in halves]
    plain = ("input_ids", "attention_mask", "position_ids")
    axes = {name: {0: "batch", 1: f"{name} 1"} for name in (*plain, "logits")}
    axes |= {name: {0: "batch", 2: f"{name} 2"} for name in (*pasts, *presents)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Flat(model),
            (torch.randint(3, 97, (2, 3)), mask, places, *past),
            str(path),
            input_names=[*plain, *pasts],
            output_names=["logits", *presents],
            dynamic_axes=axes,
            dynamo=False,
        )
    return path


def test_a_decoder_of_another_exporter_is_tuned_and_generates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "allows", lambda *_: True)
    torch.manual_seed(3)
    config = transformers.GPTJConfig(**TOKENS, **SHAPE, rotary_dim=8)
    config._attn_implementation = "eager"
    model = transformers.GPTJForCausalLM(config).eval()
    path = exported(model, tmp_path / "model.onnx")
    settings = {
        "quantization": {"weight_only": {"prompt_length": 32}},
        "tuning": {"objective": "modelsize"},
    }
    options = {"workspace": tmp_path / "run", "measure_speed": False, "progress": False}
    tuned = lpot.tune(
        path, IDS, goal=0.5, really=True, approach="weight_only", config=settings, **options
    )
    assert tuned.met and tuned.sizes[1] < 0.6 * tuned.sizes[0]
    text = model.generate(
        torch.tensor(IDS[:1, :9]),
        attention_mask=torch.ones(1, 9, dtype=torch.long),
        max_new_tokens=10,
        do_sample=False,
        eos_token_id=None,
    )
    assert list(generate(lpot.load(path), IDS[0, :9], 10)) == text[0, 9:].tolist()
    low = lpot.load(tmp_path / "run" / "decoder" / "model.onnx")
    assert len(generate(low, IDS[0, :9], 10)) == 10
