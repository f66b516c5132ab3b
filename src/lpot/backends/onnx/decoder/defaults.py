"""What a family's `config.json` means by the settings that it leaves out: files on hubs are often
written by hand, and hold what their authors thought of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# As transformers has them; families that are not named, and settings, have those of `_common`.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
    "qwen2": {
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
    },
    "qwen3": {
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "max_window_layers": 28,
    },
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
    "gemma": {"head_dim": 256, "num_key_value_heads": 16, "max_position_embeddings": 8192},
    "gemma2": {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
        "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "query_pre_attn_scalar": 256,
    },
    "gpt2": {"n_positions": 1024},
    "gpt_neox": {"partial_rotary_factor": 0.25},
    "smollm3": {
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rope_theta": 2e6,
    },
    "stablelm": {"partial_rotary_factor": 0.25, "max_position_embeddings": 4096},
    "starcoder2": {"num_key_value_heads": 2, "max_position_embeddings": 4096},
    "olmo2": {"rms_norm_eps": 1e-5},
}
