"""transformers' own doors: from_pretrained and save_pretrained of what lpot made."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

import lpot
from backends.torch.test_torch_models import BACKEND, default
from lpot.core.errors import UnsupportedModel

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
    "num_labels": 3,
}


def bert(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL)).eval()


def batches() -> list[dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    return [{"input_ids": torch.randint(1, 64, (2, 9))} for _ in range(3)]


def quantized(seed: int = 0) -> Any:
    model = BACKEND.load(bert(seed))
    return BACKEND.build(model, default(model), BACKEND.observe(model, batches(), (0,))[0])


def logits(native: Any) -> np.ndarray:
    with torch.no_grad():
        return native(**batches()[0]).logits.numpy()


@pytest.mark.parametrize("way", ["save", "save_pretrained", "save_pretrained of a copy"])
def test_from_pretrained_gives_the_int8_model(way: str, tmp_path: Path) -> None:
    built, folder = quantized(), tmp_path / "saved"
    if way == "save":
        built.save(folder)
    elif way == "save_pretrained":
        built.native.save_pretrained(folder)
    else:
        copy.deepcopy(built.native).save_pretrained(str(folder))
    told = json.loads((folder / "config.json").read_text())
    assert told["quantization_config"]["quant_method"] == "lpot"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    assert type(model) is transformers.BertForSequenceClassification
    assert np.array_equal(logits(model), logits(built.native))
    assert np.array_equal(logits(lpot.load(folder).native), logits(built.native))
    model.save_pretrained(tmp_path / "again")
    again = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "again")
    assert np.array_equal(logits(again), logits(built.native))


def test_without_lpot_random_weights_are_not_taken(tmp_path: Path) -> None:
    folder = quantized().save(tmp_path / "saved")
    code = (
        "import transformers, sys\n"
        f"transformers.AutoModelForSequenceClassification.from_pretrained({str(folder)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "lpot" in done.stderr and "mismatch" in done.stderr.lower()


def test_another_class_is_refused_with_the_right_one(tmp_path: Path) -> None:
    folder = quantized().save(tmp_path / "saved")
    with pytest.raises(UnsupportedModel, match=r"holds a BertForSequenceClassification"):
        transformers.AutoModel.from_pretrained(folder)


def test_what_is_quantized_is_not_tuned_again_from_its_folder(tmp_path: Path) -> None:
    folder = quantized().save(tmp_path / "saved")
    with pytest.raises(UnsupportedModel, match="already quantized, by lpot"):
        BACKEND.load(folder)


def test_fp32_models_are_saved_as_they_are(tmp_path: Path) -> None:
    model = BACKEND.load(bert())
    model.save(tmp_path / "fp32")
    assert "quantization_config" not in json.loads((tmp_path / "fp32/config.json").read_text())
    model.native.save_pretrained(tmp_path / "plain")
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain")
    assert np.array_equal(logits(plain), logits(model.native))


@pytest.mark.parametrize("kind", ["int8", "fp32"])
@pytest.mark.parametrize("copies", [False, True])
def test_weights_of_another_model_are_never_mixed_in(kind: str, copies: bool) -> None:
    one, other = quantized(0), quantized(5)
    native = copy.deepcopy(one.native) if copies else one.native
    before = logits(native)
    state = (other.native if kind == "int8" else bert(5)).state_dict()
    for name in [name for name in state if "LayerNorm" in name]:
        state[name] = state[name] + 1  # these are no INT8, and would be taken over
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=r"packed.*lpot\.load"):
            native.load_state_dict(state, strict=strict)
        assert np.array_equal(logits(native), before)
    native.load_state_dict(one.native.state_dict())


def test_tied_weights_are_not_said_to_be_corrupt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sizes = {"vocab_size": 64, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 16}
    torch.manual_seed(0)
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    model = BACKEND.load(net)
    built = BACKEND.build(model, default(model), BACKEND.observe(model, batches(), (0,))[0])
    built.save(tmp_path / "saved")
    capfd.readouterr()
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert "corrupt" not in capfd.readouterr().err
    assert np.array_equal(logits(again), logits(built.native))


@pytest.mark.parametrize("first", ["lpot", "transformers"])
def test_either_may_be_imported_first(first: str) -> None:
    second = {"lpot": "transformers", "transformers": "lpot"}[first]
    code = (
        f"import {first}\nimport {second}\nimport transformers.quantizers.auto as auto, sys\n"
        "assert 'lpot' in auto.AUTO_QUANTIZER_MAPPING"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
