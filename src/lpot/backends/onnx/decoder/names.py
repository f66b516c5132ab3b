"""Where each family keeps its weights: one view with the same words for all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lpot.backends.onnx.decoder.shape import DecoderShape
from lpot.core.errors import UnsupportedModel

Linear = tuple[np.ndarray, np.ndarray | None]  # [outputs, inputs] and bias

# part of a layer → its name in the family; {} is the number of the layer
_LLAMA = {
    "layer": "model.layers.{}.",
    "embedding": "model.embed_tokens",
    "final_norm": "model.norm",
    "head": "lm_head",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_GEMMA2 = {
    **_LLAMA,
    "after1": "post_attention_layernorm",
    "norm2": "pre_feedforward_layernorm",
    "after2": "post_feedforward_layernorm",
}
_GPT2 = {
    "layer": "transformer.h.{}.",
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "final_norm": "transformer.ln_f",
    "head": "lm_head",
    "norm1": "ln_1",
    "norm2": "ln_2",
    "o": "attn.c_proj",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
_OPT = {
    "layer": "model.decoder.layers.{}.",
    "embedding": "model.decoder.embed_tokens",
    "positions": "model.decoder.embed_positions",
    "project_in": "model.decoder.project_in",
    "project_out": "model.decoder.project_out",
    "final_norm": "model.decoder.final_layer_norm",
    "head": "lm_head",
    "norm1": "self_attn_layer_norm",
    "norm2": "final_layer_norm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.out_proj",
    "up": "fc1",
    "down": "fc2",
}
_NEOX = {
    "layer": "gpt_neox.layers.{}.",
    "embedding": "gpt_neox.embed_in",
    "final_norm": "gpt_neox.final_layer_norm",
    "head": "embed_out",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "o": "attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}
_STARCODER2 = {**_LLAMA, "up": "mlp.c_fc", "down": "mlp.c_proj"}
_OLMO2 = {
    **_LLAMA,
    "after1": "post_attention_layernorm",
    "after2": "post_feedforward_layernorm",
}
_PHI = {
    **_LLAMA,
    "final_norm": "model.final_layernorm",
    "o": "self_attn.dense",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
}
_WORDS = {
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2,
    "gpt2": _GPT2,
    "opt": _OPT,
    "gpt_neox": _NEOX,
    "phi": _PHI,
    "starcoder2": _STARCODER2,
    "olmo2": _OLMO2,
}


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of one decoder by what they are for."""

    shape: DecoderShape
    tensors: Mapping[str, np.ndarray]

    def array(self, word: str, layer: int | None = None, kind: str = "weight") -> np.ndarray | None:
        name = self._stored(self._name(word, layer, kind))
        return self.tensors.get(name)

    def norm(self, word: str, layer: int | None = None) -> Linear:
        weight = self._needed(word, layer)
        return weight + np.float32(self.shape.norm_offset), self.array(word, layer, "bias")

    def table(self, word: str) -> np.ndarray:
        return self._needed(word, None)

    def head(self) -> Linear:
        """The head's own weight, or the embedding where they are one; either may have a bias."""
        names = (self._words["head"], "lm_head")
        bias = self._first(f"{name}.bias" for name in names)
        weight = self._first(f"{name}.weight" for name in names)
        if weight is None and not self.shape.tied:
            self._plain(f"{self._words['head']}.weight")
        return self.table("embedding") if weight is None else weight, bias

    def _first(self, names: Iterable[str]) -> np.ndarray | None:
        return next((self.tensors[name] for name in names if name in self.tensors), None)

    @property
    def is_tied(self) -> bool:
        """Is the head the embedding once more? Some files hold it twice all the same."""
        return self.shape.tied and np.array_equal(self.head()[0], self.table("embedding"))

    def linear(self, word: str, layer: int | None) -> Linear:
        """[outputs, inputs] and bias, heads filled up to the size that they are stored in.

        `qkv` are the three below each other.
        """
        if word == "qkv":
            return _joined([self.linear(each, layer) for each in "qkv"])
        weight, bias = self._linear(word, layer)
        missing = self.shape.stored_head - self.shape.head_dim
        if not missing or word not in "qkvo":
            return weight, bias
        size = self.shape.head_dim
        if word == "o":
            columns = weight.reshape(len(weight), -1, size)
            return np.pad(columns, ((0, 0), (0, 0), (0, missing))).reshape(len(weight), -1), bias
        rows = weight.reshape(-1, size, weight.shape[1])
        filled = np.pad(rows, ((0, 0), (0, missing), (0, 0))).reshape(-1, weight.shape[1])
        if bias is not None:
            bias = np.pad(bias.reshape(-1, size), ((0, 0), (0, missing))).reshape(-1)
        return filled, bias

    def _linear(self, word: str, layer: int | None) -> Linear:
        """Cut out of the packed weight that some families keep."""
        family = self.shape.family
        if layer is None:
            return self._needed(word, None), None
        if family == "gpt2":
            return self._gpt2(word, layer)
        if family == "gpt_neox" and word in "qkv":
            return self._neox(word, layer)
        if family == "phi3" and word in ("q", "k", "v", "gate", "up"):
            return self._phi3(word, layer)
        return self._needed(word, layer), self.array(word, layer, "bias")

    def module(self, word: str, layer: int) -> str:
        """The name that transformers gives a part of a layer."""
        return f"{self._words['layer'].format(layer)}{self._words[word]}"

    def _gpt2(self, word: str, layer: int) -> Linear:
        """GPT-2 keeps [inputs, outputs], and q, k, v side by side."""
        stem = self._words["layer"].format(layer)
        name = f"{stem}attn.c_attn" if word in "qkv" else f"{stem}{self._words[word]}"
        weight, bias = self._plain(f"{name}.weight").T, self._plain(f"{name}.bias")
        if word in "qkv":
            size = self.shape.hidden
            part = slice("qkv".index(word) * size, ("qkv".index(word) + 1) * size)
            weight, bias = weight[part], bias[part]
        return weight, bias

    def _neox(self, word: str, layer: int) -> Linear:
        """q, k, v of one head stand together, head by head."""
        stem = f"{self._words['layer'].format(layer)}attention.query_key_value"
        heads, size = self.shape.heads, self.shape.head_dim
        at = "qkv".index(word)
        weight = self._plain(f"{stem}.weight").reshape(heads, 3, size, -1)[:, at]
        bias = self.tensors.get(self._stored(f"{stem}.bias"))
        cut = None if bias is None else bias.reshape(heads, 3, size)[:, at].reshape(-1)
        return weight.reshape(heads * size, -1), cut

    def _phi3(self, word: str, layer: int) -> Linear:
        stem = self._words["layer"].format(layer)
        if word in ("gate", "up"):
            both = self._plain(f"{stem}mlp.gate_up_proj.weight")
            half = len(both) // 2
            return (both[:half] if word == "gate" else both[half:]), None
        whole = self._plain(f"{stem}self_attn.qkv_proj.weight")
        q, kv = self.shape.heads * self.shape.head_dim, self.shape.kv_heads * self.shape.head_dim
        start = {"q": 0, "k": q, "v": q + kv}[word]
        return whole[start : start + (q if word == "q" else kv)], None

    @property
    def _words(self) -> Mapping[str, str]:
        return _WORDS.get(self.shape.family, _LLAMA)

    def _name(self, word: str, layer: int | None, kind: str) -> str:
        stem = "" if layer is None else self._words["layer"].format(layer)
        return f"{stem}{self._words[word]}.{kind}"

    def _needed(self, word: str, layer: int | None) -> np.ndarray:
        return self._plain(self._name(word, layer, "weight"))

    def _stored(self, name: str) -> str:
        """The name as stored: models saved without their head lack the first word."""
        return name if name in self.tensors else name.partition(".")[2]

    def _plain(self, name: str) -> np.ndarray:
        stored = self._stored(name)
        if stored not in self.tensors:
            known = ", ".join(list(self.tensors)[:3])
            raise UnsupportedModel(
                f"the weights have no {name!r} although config.json says {self.shape.family!r}; "
                f"they begin with {known}"
            )
        return self.tensors[stored]


def _joined(parts: Sequence[Linear]) -> Linear:
    """In a file of its own that the system can drop from memory, as the others lie in theirs."""
    rows, columns = sum(len(weight) for weight, _ in parts), parts[0][0].shape[1]
    with tempfile.TemporaryFile() as stream:
        whole = np.memmap(stream, np.float32, "w+", shape=(rows, columns))
    np.concatenate([weight for weight, _ in parts], out=whole)
    whole.flush()
    if all(bias is None for _, bias in parts):
        return whole, None
    biases = [np.zeros(len(weight), np.float32) if bias is None else bias for weight, bias in parts]
    return whole, np.concatenate(biases)
