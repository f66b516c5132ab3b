"""What `config.json` says of a decoder, in the words that its graph is written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lpot.core.errors import UnsupportedModel

Config = Mapping[str, Any]
LARGEST = 1 << 24  # of any size: what is larger is damage, and would fill the memory


@dataclass(frozen=True)
class DecoderShape:
    """Sizes and habits of one decoder."""

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    positions: int
    activation: str = "silu"
    gated: bool = True
    norm: Literal["rms", "layer"] = "rms"
    eps: float = 1e-6
    norm_offset: float = 0.0  # Gemma stores its norms' weights less one
    rotary: int = 0  # dimensions of a head that are rotated; 0: positions are learned
    theta: float = 10000.0
    rope_scaling: Mapping[str, Any] | None = None
    learned_offset: int = 0  # OPT's table of positions begins with two rows of no use
    parallel: bool = False  # attention and MLP read the same residual
    shared_norm: bool = False  # and the same norm of it
    sandwich: bool = False  # Gemma 2 norms what is added to the residual as well
    embedding_scale: float = 1.0
    attention_scale: float = 0.0  # 0: one over the root of the head's size
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    window: int = 0
    window_every: int = 1  # Gemma 2: one layer in so many sees a window
    tied: bool = True  # the head may be the embedding
    head_norms: bool = False  # queries and keys are normed, head by head

    @property
    def qkv_apart(self) -> bool:
        """Is something done to queries and keys before the attention gets them?"""
        return self.head_norms or self.rotary not in (0, self.head_dim)

    @property
    def qkv_rows(self) -> tuple[int, int, int]:
        """Outputs of the products for queries, keys and values."""
        return self.heads * self.head_dim, *(2 * (self.kv_heads * self.head_dim,))


def shape_of(config: Config) -> DecoderShape:
    """Raises UnsupportedModel with what is accepted where the architecture is not."""
    family = str(config.get("model_type", ""))
    make = FAMILIES.get(family)
    if make is None:
        raise UnsupportedModel(
            f"a transformers model of type {family!r} can't be written as a decoder: supported "
            f"are {', '.join(sorted(FAMILIES))}; export it to ONNX yourself and give that file"
        )
    try:
        shape = replace(make(config), tied=config.get("tie_word_embeddings") is not False)
    except KeyError as error:
        raise UnsupportedModel(
            f"config.json of type {family!r} lacks {error.args[0]!r}: is it complete?"
        ) from error
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise UnsupportedModel(
            f"config.json of type {family!r} is damaged ({error}): save the model again"
        ) from error
    for size in fields(shape):
        value = getattr(shape, size.name)
        if type(value) is int and not 0 <= value <= LARGEST:
            raise UnsupportedModel(f"config.json: {value} is not a valid {size.name} of a decoder")
    return shape


def _rope(config: Config) -> dict[str, Any]:
    """Rotary settings, as transformers 4 and 5 write them."""
    told = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if any(isinstance(value, Mapping) for value in told.values()):
        raise UnsupportedModel("rotary settings that differ by layer are not supported")
    kind = told.get("rope_type", told.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise UnsupportedModel(
            f"rotary positions of type {kind!r} are not supported: use default, linear or llama3"
        )
    theta: Any = told.get("rope_theta") or config.get("rope_theta") or 1e4
    return {"theta": float(theta), "rope_scaling": dict(told) if kind != "default" else None}


def _common(config: Config, **more: Any) -> DecoderShape:
    heads = int(config["num_attention_heads"])
    hidden = int(config["hidden_size"])
    told = config.get("rope_parameters") or {}
    head_dim = int(config.get("head_dim") or hidden // heads)
    share = told.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    usual: dict[str, Any] = {
        "family": str(config["model_type"]),
        "hidden": hidden,
        "layers": int(config["num_hidden_layers"]),
        "heads": heads,
        "kv_heads": int(config.get("num_key_value_heads") or heads),
        "head_dim": head_dim,
        "vocabulary": int(config["vocab_size"]),
        "positions": int(config.get("max_position_embeddings", 2048)),
        "activation": str(config.get("hidden_act", config.get("hidden_activation", "silu"))),
        "eps": float(config.get("rms_norm_eps", config.get("layer_norm_eps", 1e-6))),
        "rotary": int(head_dim * (1.0 if share is None else float(share))),
        **_rope(config),
    }
    return DecoderShape(**{**usual, **more})


def _llama(config: Config) -> DecoderShape:
    return _common(config)


def _mistral(config: Config) -> DecoderShape:
    return _common(config, window=int(config.get("sliding_window") or 0))


def _qwen2(config: Config) -> DecoderShape:
    if config.get("use_sliding_window"):
        raise UnsupportedModel("Qwen with use_sliding_window is not supported: set it to false")
    return _common(config, head_norms=config["model_type"] == "qwen3")


def _phi3(config: Config) -> DecoderShape:
    return _common(config, window=int(config.get("sliding_window") or 0))


def _gemma(config: Config) -> DecoderShape:
    return _common(
        config,
        activation=str(config.get("hidden_activation") or "gelu_pytorch_tanh"),
        norm_offset=1.0,
        embedding_scale=float(config["hidden_size"]) ** 0.5,
    )


def _gemma2(config: Config) -> DecoderShape:
    return _common(
        config,
        activation=str(config.get("hidden_activation") or "gelu_pytorch_tanh"),
        norm_offset=1.0,
        embedding_scale=float(config["hidden_size"]) ** 0.5,
        attention_scale=float(config.get("query_pre_attn_scalar", config["head_dim"])) ** -0.5,
        attention_softcap=float(config.get("attn_logit_softcapping") or 0.0),
        final_softcap=float(config.get("final_logit_softcapping") or 0.0),
        window=int(config.get("sliding_window") or 0),
        window_every=2,
        sandwich=True,
    )


def _gpt2(config: Config) -> DecoderShape:
    hidden, heads = int(config["n_embd"]), int(config["n_head"])
    if config.get("scale_attn_by_inverse_layer_idx"):
        raise UnsupportedModel("GPT-2 with scale_attn_by_inverse_layer_idx is not supported")
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
    )


def _opt(config: Config) -> DecoderShape:
    if not config.get("do_layer_norm_before", True):
        raise UnsupportedModel("OPT with norms behind its layers (350m) is not supported")
    if config.get("word_embed_proj_dim", config["hidden_size"]) != config["hidden_size"]:
        raise UnsupportedModel("OPT with projected embeddings (350m) is not supported")
    return _common(
        config,
        activation=str(config.get("activation_function", "relu")),
        gated=False,
        norm="layer",
        eps=1e-5,
        rotary=0,
        learned_offset=2,
    )


def _gpt_neox(config: Config) -> DecoderShape:
    told = config.get("rope_parameters") or {}
    head_dim = int(config["hidden_size"]) // int(config["num_attention_heads"])
    share: Any = told.get("partial_rotary_factor") or config.get("rotary_pct") or 0.25
    return _common(
        config,
        activation=str(config.get("hidden_act", "gelu")),
        gated=False,
        norm="layer",
        eps=float(config.get("layer_norm_eps", 1e-5)),
        rotary=int(head_dim * float(share)),
        theta=float(told.get("rope_theta") or config.get("rotary_emb_base") or 1e4),
        parallel=bool(config.get("use_parallel_residual", True)),
    )


def _phi(config: Config) -> DecoderShape:
    if config.get("qk_layernorm"):
        raise UnsupportedModel("Phi with qk_layernorm is not supported")
    return _common(
        config,
        activation=str(config.get("hidden_act", "gelu_new")),
        gated=False,
        norm="layer",
        eps=float(config.get("layer_norm_eps", 1e-5)),
        parallel=True,
        shared_norm=True,
    )


FAMILIES: Mapping[str, Callable[[Config], DecoderShape]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen2,
    "phi3": _phi3,
    "phi": _phi,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gpt2": _gpt2,
    "opt": _opt,
    "gpt_neox": _gpt_neox,
}
