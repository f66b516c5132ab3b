"""Small decoders of every family with random weights, and a small graph that is none."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from lpot.backends.onnx.graph import Graph

SMALL = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"num_key_value_heads": 2, "attention_bias": True, "head_dim": 32},
    "Mistral": {"num_key_value_heads": 2, "sliding_window": 8},
    "Qwen2": {"num_key_value_heads": 2},
    "Qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "Phi3": {"num_key_value_heads": 2, "pad_token_id": 0},
    "Phi": {"partial_rotary_factor": 0.5},
    "Gemma": {"num_key_value_heads": 1, "head_dim": 16},
    "Gemma2": {
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": 8,
        "query_pre_attn_scalar": 32,
        "final_logit_softcapping": 5.0,
    },
    "OPT": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "GPTNeoX": {"rotary_pct": 0.5},
    "Granite": {
        "num_key_value_heads": 2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.3,
        "attention_multiplier": 0.1,
        "logits_scaling": 4.0,
    },
    "SmolLM3": {"num_key_value_heads": 2, "no_rope_layers": [0, 1]},
    "StableLm": {"num_key_value_heads": 2, "use_qkv_bias": True},
    "Starcoder2": {"num_key_value_heads": 2, "sliding_window": 8},
    "Olmo2": {"num_key_value_heads": 2},
    "Gemma3": {
        "num_key_value_heads": 2,
        "head_dim": 16,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "GPT2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
}


def tiny(family: str, **changes: Any) -> Any:
    import torch
    import transformers

    torch.manual_seed(3)
    settings = {**SMALL, **FAMILIES[family], **changes}
    if family == "GPT2":
        tokens = {"vocab_size": 97, "bos_token_id": 1, "eos_token_id": 2}
        settings = {**FAMILIES[family], **tokens, **changes}
    word = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{word}Config")(**settings)
    config._attn_implementation = "eager"
    kind = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:  # norms and biases of fresh models are ones and zeros
                value.add_(0.1 * torch.randn_like(value))
            elif "embed_positions" not in name:
                value.mul_(3)
    return model


def small_net(columns: int = 64, rows: int = 96, table: int = 1200) -> Any:
    """ids → table → product → Gemm with bias, as any exporter writes them."""
    rng = np.random.default_rng(0)
    arrays = {
        "table": rng.standard_normal((table, columns)).astype(np.float32),
        "w1": rng.standard_normal((columns, rows)).astype(np.float32),
        "w2": rng.standard_normal((rows, rows)).astype(np.float32),
        "b2": rng.standard_normal(rows).astype(np.float32),
        "flat": np.array([-1, rows], np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], name="embed"),
        helper.make_node("MatMul", ["e", "w1"], ["h"], name="first"),
        helper.make_node("Tanh", ["h"], ["t"], name="bend"),
        helper.make_node("Reshape", ["t", "flat"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["logits"], name="second", transB=1),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "tokens"])
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
    graph = helper.make_graph([], "net", [ids], [out])
    header = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Graph(header, tuple(nodes), arrays).embedded()
