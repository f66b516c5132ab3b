"""What `config.json` of each family says of a decoder, in the words of `DecoderShape`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from lpot.backends.onnx.decoder.rotary import KINDS, ORIGINAL
from lpot.backends.onnx.decoder.shape import DecoderShape, Rope
from lpot.core.errors import UnsupportedModel

Config = Mapping[str, Any]
LARGEST = 1 << 24  # of any size: what is larger is damage, and would fill the memory
FULL, SLIDING = "full_attention", "sliding_attention"
OLD_KINDS = {"su": "longrope"}  # as the first Phi 3 wrote it


def shape_of(config: Config) -> DecoderShape:
    """Raises UnsupportedModel with what is accepted where the architecture is not."""
    family = str(config.get("model_type") or "")
    if not family:
        raise UnsupportedModel(
            "config.json names no model_type: save the model again with `save_pretrained(folder)`"
        )
    make = FAMILIES.get(family)
    if make is None:
        raise UnsupportedModel(
            f"a transformers model of type {family!r} can't be written as a decoder: supported "
            f"are {', '.join(sorted(FAMILIES))}; export it to ONNX yourself and give that file. A "
            "model that generates no text can be given as an object, with batches as calib"
        )
    try:
        config = {**DEFAULTS.get(family, {}), **config}
        shape = replace(make(config), tied=config.get("tie_word_embeddings") is not False)
        if shape.heads % shape.kv_heads:
            raise ValueError(f"{shape.heads} heads share {shape.kv_heads} keys and values")
    except KeyError as error:
        raise UnsupportedModel(
            f"config.json of type {family!r} lacks {error.args[0]!r}: is it complete?"
        ) from error
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise UnsupportedModel(
            f"config.json of type {family!r} is damaged ({error}): save the model again"
        ) from error
    if shape.rotary % 2:
        raise UnsupportedModel(
            f"config.json rotates {shape.rotary} of the {shape.head_dim} dimensions of a head: "
            "rotary positions turn them in pairs"
        )
    if shape.qk_norm and shape.head_dim != shape.stored_head:
        raise UnsupportedModel(
            f"heads of {shape.head_dim} with normed queries and keys are not supported: the "
            "runtime's attention takes multiples of 8"
        )
    for size in fields(shape):
        value = getattr(shape, size.name)
        if type(value) is int and not 0 <= value <= LARGEST:
            raise UnsupportedModel(f"config.json: {value} is not a valid {size.name} of a decoder")
    return shape


def _refuse(config: Config, *keys: str) -> None:
    """Habits that the graph has no words for."""
    for key in keys:
        if config.get(key):
            raise UnsupportedModel(
                f"a decoder of type {config['model_type']!r} with {key} is not supported: export "
                "it to ONNX yourself and give that file"
            )


def _rope(config: Config) -> Rope:
    """Rotary settings, as transformers 4 and 5 write them."""
    told = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if any(isinstance(value, Mapping) for value in told.values()):
        raise UnsupportedModel("rotary settings that differ by layer are not supported")
    word = str(told.get("rope_type", told.get("type", "default")))
    kind = OLD_KINDS.get(word, word)
    if kind not in KINDS:
        raise UnsupportedModel(
            f"rotary positions of type {kind!r} are not supported: use {', '.join(KINDS)}"
        )
    theta: Any = told.get("rope_theta") or config.get("rope_theta") or 1e4
    longest = config.get("max_position_embeddings")
    told[ORIGINAL] = config.get(ORIGINAL) or told.get(ORIGINAL) or longest
    if kind in ("yarn", "longrope") and longest and not told.get("factor"):
        told["factor"] = float(longest) / float(told[ORIGINAL])
    return Rope(float(theta), kind, told)


def _windowed(config: Config) -> tuple[int, ...] | None:
    """The layers that see a window, where `layer_types` tells them apart."""
    kinds = config.get("layer_types")
    if kinds is None:
        return None
    if unknown := set(kinds) - {FULL, SLIDING}:
        raise UnsupportedModel(
            f"layers of type {sorted(unknown)[0]!r} are not supported: only {FULL} and {SLIDING}"
        )
    if len(kinds) != int(config["num_hidden_layers"]):
        raise ValueError(f"{len(kinds)} layer_types for {config['num_hidden_layers']} layers")
    return tuple(at for at, kind in enumerate(kinds) if kind == SLIDING)


def _common(config: Config, **more: Any) -> DecoderShape:
    heads = int(config["num_attention_heads"])
    hidden = int(config["hidden_size"])
    head_dim = int(config.get("head_dim") or hidden // heads)
    rope = _rope(config)
    positions = int(config.get("max_position_embeddings", 2048))
    if rope.kind == "longrope":  # beyond these other factors hold, for the whole text at once
        positions = min(positions, int((rope.told or {})[ORIGINAL]))
    usual: dict[str, Any] = {
        "family": str(config["model_type"]),
        "hidden": hidden,
        "layers": int(config["num_hidden_layers"]),
        "heads": heads,
        "kv_heads": int(config.get("num_key_value_heads") or heads),
        "head_dim": head_dim,
        "vocabulary": int(config["vocab_size"]),
        "positions": positions,
        "activation": str(config.get("hidden_act", config.get("hidden_activation", "silu"))),
        "eps": float(config.get("rms_norm_eps", config.get("layer_norm_eps", 1e-6))),
        "rotary": head_dim,
        "rope": rope,
    }
    return DecoderShape(**{**usual, **more})


def _partly_rotated(config: Config, **more: Any) -> DecoderShape:
    """Of the families that rotate a share of each head; the others pass over that setting."""
    told, shape = config.get("rope_parameters") or {}, _common(config, **more)
    share = told.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    return replace(shape, rotary=int(shape.head_dim * (1.0 if share is None else float(share))))


def _llama(config: Config) -> DecoderShape:
    return _common(config)


def _mistral(config: Config) -> DecoderShape:
    return _common(config, window=int(config.get("sliding_window") or 0))


def _phi3(config: Config) -> DecoderShape:
    return _partly_rotated(config, window=int(config.get("sliding_window") or 0))


def _qwen(config: Config) -> DecoderShape:
    layers, first = int(config["num_hidden_layers"]), int(config.get("max_window_layers") or 0)
    windowed = _windowed(config)
    return _common(
        config,
        qk_norm="heads" if config["model_type"] == "qwen3" else "",
        window=int(config.get("sliding_window") or 0) if config.get("use_sliding_window") else 0,
        windowed=tuple(range(first, layers)) if windowed is None else windowed,
    )


def _gemma(config: Config, **more: Any) -> DecoderShape:
    _refuse(config, "use_bidirectional_attention")
    usual: dict[str, Any] = {
        "activation": str(config.get("hidden_activation") or "gelu_pytorch_tanh"),
        "norm_offset": 1.0,
        "embedding_scale": float(config["hidden_size"]) ** 0.5,
    }
    return _common(config, **{**usual, **more})


def _sandwiched(config: Config, every: int, **more: Any) -> DecoderShape:
    layers, windowed = int(config["num_hidden_layers"]), _windowed(config)
    seen = tuple(at for at in range(layers) if (at + 1) % every)
    return _gemma(
        config,
        attention_scale=float(config["query_pre_attn_scalar"]) ** -0.5,
        final_softcap=float(config.get("final_logit_softcapping") or 0.0),
        window=int(config.get("sliding_window") or 0),
        windowed=seen if windowed is None else windowed,
        sandwich=True,
        **more,
    )


def _gemma2(config: Config) -> DecoderShape:
    return _sandwiched(
        config, 2, attention_softcap=float(config.get("attn_logit_softcapping") or 0.0)
    )


def _gemma3(config: Config) -> DecoderShape:
    """Layers that see a window have rotary positions of their own."""
    by_layer = config.get("rope_parameters") or {}
    whole = {"rope_theta": config.get("rope_theta") or 1e6, **(config.get("rope_scaling") or {})}
    local = {"rope_theta": config.get("rope_local_base_freq") or 1e4}  # as transformers 4 wrote it
    return _sandwiched(
        {**config, "rope_parameters": by_layer.get(FULL) or whole},
        int(config.get("sliding_window_pattern") or 6),
        qk_norm="heads",
        window_rope=_rope({**config, "rope_parameters": by_layer.get(SLIDING) or local}),
    )


def _gpt2(config: Config) -> DecoderShape:
    _refuse(config, "add_cross_attention")
    hidden, heads = int(config["n_embd"]), int(config["n_head"])
    return DecoderShape(
        family="gpt2",
        hidden=hidden,
        layers=int(config["n_layer"]),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocabulary=int(config["vocab_size"]),
        positions=int(config["n_positions"]),
        activation=str(config.get("activation_function", "gelu_new")),
        gated=False,
        norm="layer",
        eps=float(config.get("layer_norm_epsilon", 1e-5)),
        attention_scale=0.0 if config.get("scale_attn_weights", True) else 1.0,
        scale_by_layer=bool(config.get("scale_attn_by_inverse_layer_idx")),
    )


def _opt(config: Config) -> DecoderShape:
    hidden = int(config["hidden_size"])
    width = int(config.get("word_embed_proj_dim") or hidden)
    post = not config.get("do_layer_norm_before", True)
    return _common(
        config,
        activation=str(config.get("activation_function", "relu")),
        gated=False,
        norm="layer",
        eps=1e-5,
        rotary=0,
        learned_offset=2,
        post_norm=post,
        final_norm=not post and not config.get("_remove_final_layer_norm"),
        embedding_width=width if width != hidden else 0,
    )


def _gpt_neox(config: Config) -> DecoderShape:
    old = {"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}  # and its new
    told = {new: config[word] for word, new in old.items() if config.get(word)}
    return _partly_rotated(
        {**config, **told},
        activation=str(config.get("hidden_act", "gelu")),
        gated=False,
        norm="layer",
        eps=float(config.get("layer_norm_eps", 1e-5)),
        parallel=bool(config.get("use_parallel_residual", True)),
    )


def _phi(config: Config) -> DecoderShape:
    _refuse(config, "qk_layernorm")
    return _partly_rotated(
        config,
        activation=str(config.get("hidden_act", "gelu_new")),
        gated=False,
        norm="layer",
        eps=float(config.get("layer_norm_eps", 1e-5)),
        parallel=True,
        shared_norm=True,
    )


def _granite(config: Config) -> DecoderShape:
    return _common(
        config,
        embedding_scale=float(config.get("embedding_multiplier", 1.0)),
        residual_scale=float(config.get("residual_multiplier", 1.0)),
        attention_scale=float(config.get("attention_multiplier", 1.0)),
        logits_scale=1.0 / float(config.get("logits_scaling", 1.0)),
    )


def _smollm3(config: Config) -> DecoderShape:
    layers, every = int(config["num_hidden_layers"]), int(config.get("no_rope_layer_interval", 4))
    rotated = config.get("no_rope_layers") or [(at + 1) % every for at in range(layers)]
    unrotated = tuple(at for at, turns in enumerate(rotated) if not turns)
    windowed = _windowed(config)
    return _common(
        config,
        unrotated=unrotated,
        window=int(config.get("sliding_window") or 0) if config.get("use_sliding_window") else 0,
        windowed=unrotated if windowed is None else windowed,
    )


def _stablelm(config: Config) -> DecoderShape:
    _refuse(config, "qk_layernorm")
    parallel = bool(config.get("use_parallel_residual"))
    eps = float(config.get("layer_norm_eps", 1e-5))
    return _partly_rotated(config, norm="layer", eps=eps, parallel=parallel, shared_norm=parallel)


def _starcoder2(config: Config) -> DecoderShape:
    return _common(
        config,
        activation=str(config.get("hidden_act", "gelu_pytorch_tanh")),
        gated=False,
        norm="layer",
        eps=float(config.get("norm_epsilon", 1e-5)),
        window=int(config.get("sliding_window") or 0),
    )


def _olmo2(config: Config) -> DecoderShape:
    return _common(config, pre_norm=False, sandwich=True, qk_norm="whole")


FAMILIES: Mapping[str, Callable[[Config], DecoderShape]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "phi3": _phi3,
    "phi": _phi,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "opt": _opt,
    "gpt_neox": _gpt_neox,
    "granite": _granite,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
    "olmo2": _olmo2,
}


# -- What a family's `config.json` means by the settings that it leaves out: files on hubs are
# often written by hand, and hold what their authors thought of.


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
