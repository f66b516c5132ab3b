"""What members of a family differ in: each is written as it computes, or refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from decoder.nets import tiny
from lpot.core.errors import UnsupportedModel
from lpot.core.model import Model
from lpot.jobs.decoder.generate import generate
from lpot.jobs.decoder.inputs import feeds

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from lpot.backends import export_decoder  # noqa: E402

IDS = np.random.default_rng(0).integers(3, 97, (1, 50))


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **more}}


LONG = {"short_factor": [1.3] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 64}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("linear", "Llama", rope("linear", factor=4.0)),
    ("dynamic", "Llama", rope("dynamic", factor=4.0)),
    ("llama3", "Llama", rope("llama3", factor=8.0, **LLAMA3)),
    ("yarn", "Llama", rope("yarn", factor=4.0, original_max_position_embeddings=32)),
    ("yarn scales", "Llama", rope("yarn", factor=4.0, mscale=0.7, mscale_all_dim=1.2)),
    ("longrope", "Phi3", rope("longrope", **LONG) | {"original_max_position_embeddings": 64}),
    ("head of 6", "Llama", {"head_dim": 6}),
    ("head of 20", "Llama", {"head_dim": 20}),
    ("head of 24", "Llama", {"head_dim": 24, "num_key_value_heads": 1}),
    ("GPT-2, head of 12", "GPT2", {"n_embd": 48}),
    ("tied", "Llama", {"tie_word_embeddings": True, "mlp_bias": True}),
    ("layers told apart", "Gemma2", {"layer_types": ["full_attention", "sliding_attention"]}),
    (
        "windows from a layer on",
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    ("not scaled", "GPT2", {"scale_attn_weights": False}),
    ("scaled by layer", "GPT2", {"scale_attn_by_inverse_layer_idx": True}),
    ("one after the other", "GPTNeoX", {"use_parallel_residual": False}),
    ("whole heads", "GPTNeoX", {"rotary_pct": 1.0}),
    ("side by side", "StableLm", {"use_parallel_residual": True}),
    ("350m", "OPT", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    ("projected", "OPT", {"word_embed_proj_dim": 32}),
    ("a share that Llama passes over", "Llama", rope("default", partial_rotary_factor=0.5)),
    ("a cap that Gemma 3 passes over", "Gemma3", {"attn_logit_softcapping": 2.0}),
    ("an old word for SiLU", "Llama", {"hidden_act": "swish"}),
    ("tied, with a bias", "Phi", {"tie_word_embeddings": True}),
    ("no norm in the end", "OPT", {"_remove_final_layer_norm": True}),
]


def written(model: Any, place: Path) -> Model:
    return lpot.load(export_decoder(model, place))


@pytest.mark.parametrize(
    "family, changes", [each[1:] for each in VARIANTS], ids=[each[0] for each in VARIANTS]
)
def test_variants_compute_and_generate_what_transformers_does(
    family: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = tiny(family, **changes)
    model.save_pretrained(tmp_path / "net")
    found = written(tmp_path / "net", tmp_path / "out")
    with torch.no_grad():
        truth = model(torch.tensor(IDS)).logits.numpy()
        text = model.generate(
            torch.tensor(IDS[:, :9]),
            attention_mask=torch.ones(1, 9, dtype=torch.long),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=None,
        )
    logits = found.backend.run(found, feeds(found.inputs or (), IDS))[0]
    np.testing.assert_allclose(logits, truth, atol=1e-5 * np.abs(truth).max())
    assert list(generate(found, IDS[0, :9], 12)) == text[0, 9:].tolist()


LEFT_OUT = [
    ("Phi3", "rms_norm_eps"),
    ("Phi", "rope_parameters"),
    ("StableLm", "rope_parameters"),
    ("SmolLM3", "rope_parameters"),
    ("Gemma2", "final_logit_softcapping"),
    ("Gemma2", "query_pre_attn_scalar"),
    ("Gemma3", "sliding_window"),
    ("Starcoder2", "num_key_value_heads"),
    ("Olmo2", "rms_norm_eps"),
    ("Gemma", "hidden_act"),
]


@pytest.mark.parametrize("family, key", LEFT_OUT)
def test_what_a_config_leaves_out_is_what_transformers_takes(
    family: str, key: str, tmp_path: Path
) -> None:
    """Configs on hubs are often written by hand."""
    tiny(family).save_pretrained(tmp_path / "net")
    place = tmp_path / "net" / "config.json"
    config = json.loads(place.read_text())
    del config[key]
    place.write_text(json.dumps(config))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "net", attn_implementation="eager"
    ).eval()
    found = written(tmp_path / "net", tmp_path / "out")
    with torch.no_grad():
        truth = model(torch.tensor(IDS)).logits.numpy()
    logits = found.backend.run(found, feeds(found.inputs or (), IDS))[0]
    np.testing.assert_allclose(logits, truth, atol=1e-5 * np.abs(truth).max())


@pytest.mark.parametrize("family", ("Llama", "GPT2", "OPT", "GPTNeoX", "Phi", "Mistral", "Gemma3"))
def test_rows_of_different_lengths_are_padded_on_the_right(family: str, tmp_path: Path) -> None:
    """Behind a padded prompt each row goes on at its own place."""
    model = tiny(family)
    found = written(model, tmp_path)
    rows = [IDS[0, :9].tolist(), IDS[0, 10:15].tolist(), IDS[0, 20:22].tolist()]
    ids = np.array([row + [0] * (9 - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (9 - len(row)) for row in rows])
    fed = feeds(found.inputs or (), ids) | {"attention_mask": mask}
    outputs = found.backend.run(found, fed)
    last = [outputs[0][at, len(row) - 1] for at, row in enumerate(rows)]
    for _ in range(5):
        for row, logits in zip(rows, last, strict=True):
            with torch.no_grad():
                truth = model(torch.tensor([row])).logits[0, -1].numpy()
            np.testing.assert_allclose(logits, truth, atol=1e-5 * np.abs(truth).max())
            row.append(int(truth.argmax()))
        mask = np.concatenate([mask, np.ones_like(mask[:, :1])], axis=1)
        caches = [spec.name for spec in found.inputs or () if "past" in spec.name]
        fed = dict(zip(caches, outputs[1:], strict=True)) | {"attention_mask": mask}
        outputs = found.backend.run(found, fed | {"input_ids": np.array([r[-1:] for r in rows])})
        last = [outputs[0][at, 0] for at in range(len(rows))]


@pytest.mark.parametrize("word", ("GPT2ForSequenceClassification", "GPT2DoubleHeadsModel"))
def test_a_model_with_another_head_is_not_taken_for_a_decoder(word: str, tmp_path: Path) -> None:
    """Its head is tied in the config, so that the embedding would do for one."""
    model = getattr(transformers, word)(tiny("GPT2").config)
    with pytest.raises(UnsupportedModel, match=rf"{word}: it has the weight '.*no place"):
        export_decoder(model, tmp_path / "out")
    model.save_pretrained(tmp_path / "net")
    with pytest.raises(UnsupportedModel, match=r"it has the weight '.*no place"):
        export_decoder(tmp_path / "net", tmp_path / "out")


@pytest.mark.parametrize(
    "family, changes, why",
    [
        ("Phi", {"qk_layernorm": True}, "'phi' with qk_layernorm is not supported"),
        ("Qwen3", {"head_dim": 20}, "heads of 20 with normed queries"),
        ("Llama", {"hidden_act": "relu2"}, "activation 'relu2'.*supported: silu"),
        ("Gemma2", {"layer_types": ["chunked_attention"] * 2}, "'chunked_attention'"),
        ("Gemma2", {"layer_types": ["full_attention"]}, "1 layer_types for 2 layers"),
        ("Llama", {"num_key_value_heads": 3}, "4 heads share 3"),
        ("GPTNeoX", {"rope_parameters": {"partial_rotary_factor": 0.1}}, "1 of the 16.*in pairs"),
    ],
)
def test_variants_that_are_not_known_are_told(
    family: str, changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    tiny(family).save_pretrained(tmp_path / "net")
    place = tmp_path / "net" / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | changes))
    with pytest.raises(UnsupportedModel, match=why):
        export_decoder(tmp_path / "net", tmp_path / "out")
