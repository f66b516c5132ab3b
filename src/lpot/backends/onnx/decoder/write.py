"""A decoder's graph: plain products for the weights, the runtime's own attention and norms.

Inputs: input_ids [batch, tokens], attention_mask [batch, past + tokens] and the KV cache,
past_key_values.N.key / .value [batch, kv heads, past, head]; outputs: logits and present.N.key /
.value. These are the names that onnxruntime-genai looks for. Padding is on the right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from lpot.backends.onnx.decoder.names import Weights
from lpot.backends.onnx.decoder.rotary import rotary_tables
from lpot.backends.onnx.decoder.shape import DecoderShape
from lpot.backends.onnx.graph import Graph
from lpot.core.errors import UnsupportedModel
from lpot.core.progress import tracked

OPSET, IR = 21, 10
MICROSOFT = "com.microsoft"
_ALIASES = {"swish": "silu", "gelu_python": "gelu", "gelu_accurate": "gelu_new"}
_ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "quick_gelu")


def write_decoder(weights: Weights) -> Graph:
    """The graph of a decoder, FP32."""
    return _Writer(weights).write()


class _Writer:
    def __init__(self, weights: Weights) -> None:
        self.source = weights
        self.shape: DecoderShape = weights.shape
        self.activation = _ALIASES.get(self.shape.activation, self.shape.activation)
        if self.activation not in _ACTIVATIONS:
            raise UnsupportedModel(
                f"activation {self.activation!r} is not supported; supported: "
                f"{', '.join(_ACTIVATIONS)}"
            )
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def write(self) -> Graph:
        self._lengths()
        residual, pending = self._embedded(), ""
        for layer in tracked(range(self.shape.layers)):
            residual, pending = self._layer(layer, residual, pending)
        self._logits(self._last(residual, pending))
        return Graph(self._header(), tuple(self.nodes), self.weights)

    # -- the parts ---------------------------------------------------------------------------

    def _lengths(self) -> None:
        """What the attention must know: tokens of each row less one, and the longest row."""
        self._const("one", np.array([1], np.int64))
        self._const("first", np.array(1, np.int64))
        self._op("ReduceSum", ["attention_mask", "one"], "row_lengths", keepdims=0)
        self._op("Sub", ["row_lengths", "one"], "row_last")
        self._op("Cast", ["row_last"], "seqlens_k", to=TensorProto.INT32)
        self._op("Shape", ["attention_mask"], "mask_shape")
        self._op("Gather", ["mask_shape", "first"], "total", axis=0)
        self._op("Cast", ["total"], "total_length", to=TensorProto.INT32)
        if self.shape.turned_inside:
            return
        # Of each row its own places: behind a padded prompt the rows have different lengths.
        self._const("none", np.array([0], np.int64))
        self._const("start", np.array(0, np.int64))
        self._op("Shape", ["input_ids"], "ids_shape")
        self._op("Gather", ["ids_shape", "first"], "tokens", axis=0)
        self._op("Range", ["start", "tokens", "first"], "steps")
        self._op("Sub", ["row_lengths", "tokens"], "row_rest")
        self._op("Max", ["row_rest", "none"], "row_past")
        self._op("Unsqueeze", ["row_past", "one"], "row_starts")
        self._op("Add", ["row_starts", "steps"], "places")

    def _embedded(self) -> str:
        table = self.source.table("embedding")
        expected = (self.shape.vocabulary, self.shape.embedding_width or self.shape.hidden)
        if table.shape != expected:
            raise UnsupportedModel(
                f"the embedding has the shape {list(table.shape)}, but config.json says "
                f"{list(expected)} (vocabulary, hidden size): do they belong to the same model?"
            )
        self._const("embed_tokens.weight", table)
        found = self._op("Gather", ["embed_tokens.weight", "input_ids"], "embedded")
        if self.shape.embedding_scale != 1.0:
            self._const("embedding_scale", np.float32(self.shape.embedding_scale))
            found = self._op("Mul", [found, "embedding_scale"], "embedded_scaled")
        if self.shape.embedding_width:
            found = self._linear("project_in", None, found, "project_in")
        if not self.shape.rotary:
            found = self._op("Add", [found, self._learned()], "embedded_placed")
        return found

    def _learned(self) -> str:
        table = self.source.table("positions")[self.shape.learned_offset :]
        self._const("embed_positions.weight", table)
        return self._op("Gather", ["embed_positions.weight", "places"], "placed")

    def _layer(self, at: int, residual: str, pending: str) -> tuple[str, str]:
        """The residual as it is and what is still to be added to it, behind this layer."""
        shape, stem = self.shape, f"layers.{at}"
        if shape.post_norm:
            attended = self._attention(at, residual)
            residual, _ = self._skip_norm("norm1", residual, attended, at)
            return self._skip_norm("norm2", residual, self._mlp(at, residual), at)[0], ""
        normed, residual = self._read("norm1", residual, pending, at)
        attended = self._added("after1", self._attention(at, normed), at)
        if shape.parallel:
            other = normed if shape.shared_norm else self._norm("norm2", residual, at)
            both = self._op("Add", [attended, self._mlp(at, other)], f"{stem}/both")
            return residual, both
        normed, residual = self._read("norm2", residual, attended, at)
        return residual, self._added("after2", self._mlp(at, normed), at)

    def _read(self, word: str, residual: str, pending: str, at: int) -> tuple[str, str]:
        """What attention or MLP read, and the residual."""
        if self.shape.pre_norm:
            return self._skip_norm(word, residual, pending, at)
        whole = self._op("Add", [residual, pending], f"layers.{at}/{word}/sum") if pending else ""
        return whole or residual, whole or residual

    def _added(self, word: str, made: str, at: int) -> str:
        """What is added to the residual."""
        if self.shape.sandwich:
            made = self._norm(word, made, at)
        if self.shape.residual_scale != 1.0:
            self._const("residual_scale", np.float32(self.shape.residual_scale))
            made = self._op("Mul", [made, "residual_scale"], f"layers.{at}/{word}/scaled")
        return made

    def _last(self, residual: str, pending: str) -> str:
        """What the head reads."""
        found = residual
        if self.shape.final_norm:
            found, _ = self._skip_norm("final_norm", residual, pending, None)
        elif pending:
            found = self._op("Add", [residual, pending], "final_sum")
        if self.shape.embedding_width:
            found = self._linear("project_out", None, found, "project_out")
        return found

    def _attention(self, at: int, x: str) -> str:
        shape, stem = self.shape, f"layers.{at}/attn"
        caches = self._turns(at) if shape.turned_inside else []
        qkv = self._turned_qkv(at, x, stem) if shape.qkv_apart else self._qkv(at, x, stem)
        past = [f"past_key_values.{at}.key", f"past_key_values.{at}.value"]
        scale = shape.attention_scale or shape.head_dim**-0.5
        settings: dict[str, Any] = {
            "num_heads": shape.heads,
            "kv_num_heads": shape.kv_heads,
            "do_rotary": int(bool(caches)),
            "scale": scale / (at + 1) if shape.scale_by_layer else scale,
            "softcap": shape.attention_softcap,
            "local_window_size": self._window(at),
        }
        made = [f"{stem}/attended", f"present.{at}.key", f"present.{at}.value"]
        inputs = [*qkv, *past, "seqlens_k", "total_length", *caches]
        self.nodes.append(
            helper.make_node(
                "GroupQueryAttention", inputs, made, name=stem, domain=MICROSOFT, **settings
            )
        )
        return self._linear("o", at, made[0], f"{stem}/o_proj")

    def _qkv(self, at: int, x: str, stem: str) -> list[str]:
        """One product for all three, as the attention takes them: one call in place of three."""
        return [self._linear("qkv", at, x, f"{stem}/qkv_proj"), "", ""]

    def _turned_qkv(self, at: int, x: str, stem: str) -> list[str]:
        shape = self.shape
        q, k, v = (self._linear(word, at, x, f"{stem}/{word}_proj") for word in "qkv")
        if shape.qk_norm:
            q = self._head_norm("q_norm", at, q, shape.heads)
            k = self._head_norm("k_norm", at, k, shape.kv_heads)
        turns = self._turns(at)
        if turns and not shape.turned_inside:
            q = self._rotated(q, turns, shape.heads, f"{stem}/q_turned")
            k = self._rotated(k, turns, shape.kv_heads, f"{stem}/k_turned")
        return [q, k, v]

    def _turns(self, at: int) -> list[str]:
        """Cosines and sines of a layer; none where it has no positions."""
        rope = self.shape.rope_of(at)
        if rope is None:
            return []
        names = ["cos_cache", "sin_cache"]
        if rope is self.shape.window_rope:
            names = ["cos_cache_local", "sin_cache_local"]
        if names[0] not in self.weights:
            self.weights |= dict(zip(names, rotary_tables(self.shape, rope), strict=True))
        return names

    def _rotated(self, x: str, turns: list[str], heads: int, output: str) -> str:
        inputs = [x, "places", *turns]
        size = self.shape.rotary
        return self._op(
            *("RotaryEmbedding", inputs, output),
            domain=MICROSOFT,
            num_heads=heads,
            rotary_embedding_dim=size,
        )

    def _window(self, at: int) -> int:
        window = self.shape.window_of(at)
        return window if 0 < window < self.shape.positions else -1

    def _mlp(self, at: int, x: str) -> str:
        stem = f"layers.{at}/mlp"
        up = self._linear("up", at, x, f"{stem}/up_proj")
        if self.shape.gated:
            gate = self._activation(self._linear("gate", at, x, f"{stem}/gate_proj"), stem)
            up = self._op("Mul", [gate, up], f"{stem}/gated")
        else:
            up = self._activation(up, stem)
        return self._linear("down", at, up, f"{stem}/down_proj")

    def _activation(self, x: str, stem: str) -> str:
        word, name = self.activation, f"{stem}/act"
        if word == "relu":
            return self._op("Relu", [x], name)
        if word in ("silu", "quick_gelu"):
            alpha = 1.0 if word == "silu" else 1.702
            return self._op("QuickGelu", [x], name, domain=MICROSOFT, alpha=alpha)
        return self._op("Gelu", [x], name, approximate="none" if word == "gelu" else "tanh")

    def _logits(self, x: str) -> None:
        scale, cap = self.shape.logits_scale, self.shape.final_softcap
        final = "logits" if scale == 1.0 and not cap else "logits/product"
        weight, bias = self.source.head()
        if self.source.is_tied:  # stored once; the runtime turns it while loading
            self._op("Transpose", ["embed_tokens.weight"], "lm_head.weight", perm=[1, 0])
        else:
            self._const("lm_head.weight", weight.T)
        self._product(x, bias, "lm_head", final)
        if scale != 1.0:
            self._const("logits_scale", np.float32(scale))
            final = self._op("Mul", [final, "logits_scale"], "logits/raw" if cap else "logits")
        if cap:
            self._const("softcap", np.float32(cap))
            self._op("Div", [final, "softcap"], "logits/small")
            self._op("Tanh", ["logits/small"], "logits/bent")
            self._op("Mul", ["logits/bent", "softcap"], "logits")

    # -- norms and products ------------------------------------------------------------------

    def _norm_parts(self, word: str, at: int | None) -> tuple[str, list[str]]:
        name = word if at is None else f"layers.{at}/{word}"
        weight, bias = self.source.norm(word, at)
        self._const(f"{name}.weight", weight)
        inputs = [f"{name}.weight"]
        if self.shape.norm == "layer":
            self._const(f"{name}.bias", np.zeros_like(weight) if bias is None else bias)
            inputs.append(f"{name}.bias")
        return name, inputs

    def _norm(self, word: str, x: str, at: int | None) -> str:
        name, parts = self._norm_parts(word, at)
        return self._plain_norm(x, parts, name)

    def _plain_norm(self, x: str, parts: list[str], name: str) -> str:
        kind = (
            "LayerNormalization" if self.shape.norm == "layer" else "SimplifiedLayerNormalization"
        )
        return self._op(kind, [x, *parts], f"{name}/out", axis=-1, epsilon=self.shape.eps)

    def _skip_norm(self, word: str, residual: str, added: str, at: int | None) -> tuple[str, str]:
        """The norm of residual + added, and that sum."""
        if not added:
            return self._norm(word, residual, at), residual
        name, parts = self._norm_parts(word, at)
        kind = "Skip" if self.shape.norm == "layer" else "SkipSimplified"
        made = [f"{name}/out", "", "", f"{name}/sum"]
        self.nodes.append(
            helper.make_node(
                f"{kind}LayerNormalization",
                [residual, added, *parts],
                made,
                name=name,
                domain=MICROSOFT,
                epsilon=self.shape.eps,
            )
        )
        return made[0], made[3]

    def _head_norm(self, word: str, at: int, x: str, heads: int) -> str:
        """Each head is normed for itself, or all of them at once."""
        name, parts = self._norm_parts(word, at)
        if self.shape.qk_norm == "whole":
            return self._plain_norm(x, parts, name)
        size = self.shape.head_dim
        self._const(f"{name}/heads", np.array([0, -1, heads, size], np.int64))
        self._const(f"{name}/flat", np.array([0, -1, heads * size], np.int64))
        apart = self._op("Reshape", [x, f"{name}/heads"], f"{name}/apart")
        normed = self._plain_norm(apart, parts, name)
        return self._op("Reshape", [normed, f"{name}/flat"], f"{name}/joined")

    def _linear(self, word: str, at: int | None, x: str, name: str) -> str:
        weight, bias = self.source.linear(word, at)
        self._const(f"{name}.weight", weight.T)
        return self._product(x, bias, name, f"{name}/out")

    def _product(self, x: str, bias: np.ndarray | None, name: str, output: str) -> str:
        """With the matrix `{name}.weight`, wherever that comes from."""
        product = output if bias is None else f"{name}/product"
        self._op("MatMul", [x, f"{name}.weight"], product, name=name)
        if bias is not None:
            self._const(f"{name}.bias", bias)
            self._op("Add", [product, f"{name}.bias"], output)
        return output

    # -- protos ------------------------------------------------------------------------------

    def _const(self, name: str, value: Any) -> None:
        """Turned matrices stay views of the files that they come from: no copy of all is held."""
        if name in self.weights:
            return
        array = np.asarray(value)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UnsupportedModel(
                f"the weight {name!r} holds NaN or infinite values: is the checkpoint damaged?"
            )
        self.weights[name] = array

    def _op(
        self, kind: str, inputs: list[str], output: str, name: str = "", **settings: Any
    ) -> str:
        node = helper.make_node(kind, inputs, [output], name=name or f"{output}:{kind}", **settings)
        self.nodes.append(node)
        return output

    def _header(self) -> Any:
        inputs = [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]),
            *self._cache("past_key_values", "past"),
        ]
        logits = ["batch", "tokens", self.shape.vocabulary]
        outputs = [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits),
            *self._cache("present", "total"),
        ]
        graph = helper.make_graph([], "decoder", inputs, outputs)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="lpot")

    def _cache(self, stem: str, length: str) -> Iterator[ValueInfoProto]:
        sizes = ["batch", self.shape.kv_heads, length, self.shape.stored_head]
        for at in range(self.shape.layers):
            for part in ("key", "value"):
                name = f"{stem}.{at}.{part}"
                yield helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
