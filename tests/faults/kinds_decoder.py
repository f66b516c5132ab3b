"""Folders of decoders, as files to mutate: each maker gives the file and how it is opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Opener = Callable[[], Any]

WIDE, TOKENS = 8, 16
CONFIG = {
    "model_type": "llama",
    "hidden_size": WIDE,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": TOKENS,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    "tie_word_embeddings": False,
    "eos_token_id": 1,
    "bos_token_id": 0,
}
INDEX, FILE = "model.safetensors.index.json", "model.safetensors"


def _tensors() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": (TOKENS, WIDE),
        f"{layer}.mlp.gate_proj.weight": (16, WIDE),
        f"{layer}.mlp.up_proj.weight": (16, WIDE),
        f"{layer}.mlp.down_proj.weight": (WIDE, 16),
        f"{layer}.input_layernorm.weight": (WIDE,),
        f"{layer}.post_attention_layernorm.weight": (WIDE,),
        "model.norm.weight": (WIDE,),
        "lm_head.weight": (TOKENS, WIDE),
    }
    shapes |= {f"{layer}.self_attn.{word}_proj.weight": (WIDE, WIDE) for word in "qkvo"}
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _decoder(root: Path) -> tuple[Path, Opener]:
    from safetensors.numpy import save_file

    from lpot.backends.onnx.decoder.export import export_decoder
    from lpot.jobs.decoder.tokens import tokens_of

    folder = root / "decoder"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    tensors = _tensors()
    save_file(tensors, folder / FILE)
    places = dict.fromkeys(tensors, FILE)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))

    def opened() -> None:
        shutil.rmtree(root / "fp32", ignore_errors=True)
        export_decoder(folder, root / "fp32")
        tokens_of("a b a", folder)

    return folder, opened


def config(root: Path) -> tuple[Path, Opener]:
    folder, opened = _decoder(root)
    return folder / "config.json", opened


def tensors(root: Path) -> tuple[Path, Opener]:
    folder, opened = _decoder(root)
    (folder / INDEX).unlink()
    return folder / FILE, opened


def index(root: Path) -> tuple[Path, Opener]:
    folder, opened = _decoder(root)
    return folder / INDEX, opened


def generation(root: Path) -> tuple[Path, Opener]:
    from lpot.jobs.decoder.generate import _ends

    folder, _ = _decoder(root)
    return folder / "generation_config.json", lambda: _ends(folder)


def _tokenizer() -> dict[str, Any]:
    vocabulary = {word: number for number, word in enumerate(("[UNK]", "a", "b"))}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }


def tokenizer(root: Path) -> tuple[Path, Opener]:
    from lpot.data.tokenizer import load_tokenizer
    from lpot.jobs.decoder.tokens import tokens_of

    folder, _ = _decoder(root)

    def opened() -> None:
        tokens_of("a b a", folder)
        load_tokenizer(folder, model_type="roberta").encode("a", "b", 8)

    return folder / "tokenizer.json", opened


# -- GPTQ's files ----------------------------------------------------------------------------------


def _gptq(root: Path) -> tuple[Path, Opener]:
    from safetensors.numpy import save_file

    from lpot.backends.onnx.decoder.gptq_files import read_gptq
    from lpot.core.weight_only.grid import Format, Rounded
    from lpot.core.weight_only.pack import pack_gptq

    folder = root / "gptq"
    folder.mkdir()
    fmt, draw = Format(4, 32), np.random.default_rng(2)
    codes = draw.integers(0, 16, (WIDE, 64)).astype(np.uint8)
    scales = draw.random((WIDE, 2), np.float32)
    packed = pack_gptq(Rounded(fmt, codes, scales, None))
    stored = {f"model.layers.0.q_proj.{part}": np.asarray(a) for part, a in packed.items()}
    stored["model.norm.weight"] = np.ones(WIDE, np.float32)
    save_file({name: np.ascontiguousarray(a) for name, a in stored.items()}, folder / FILE)
    own = {r"+:^model\.layers\.0\.q_proj$": {"bits": 4, "group_size": 32}}
    told = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "dynamic": own}
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": told}))
    return folder, lambda: read_gptq(folder)


def gptq_config(root: Path) -> tuple[Path, Opener]:
    folder, opened = _gptq(root)
    return folder / "config.json", opened


def gptq_tensors(root: Path) -> tuple[Path, Opener]:
    folder, opened = _gptq(root)
    return folder / FILE, opened


def rounded_weights(root: Path) -> tuple[Path, Opener]:
    """What a run that was killed left of its rounded weights."""
    from lpot.backends.onnx.weight_only.emit import Stored
    from lpot.backends.onnx.weight_only.store import WeightStore
    from lpot.core.weight_only.grid import Format, Rounded

    store = WeightStore(root / "weights")
    codes = np.random.default_rng(2).integers(0, 16, (WIDE, 64)).astype(np.uint8)
    rounded = Rounded(Format(4, 32), codes, np.ones((WIDE, 2), np.float32), None)

    def opened() -> None:
        store.drop_damaged()
        if not store.has("op", "4g32"):
            store.put("op", "4g32", Stored(rounded, None), 0.5)
        assert store.get("op", "4g32").rounded.codes.shape == codes.shape
        assert store.loss("op", "4g32") >= 0

    store.put("op", "4g32", Stored(rounded, None), 0.5)
    (path,) = (root / "weights").glob("*.npz")
    return path, opened
