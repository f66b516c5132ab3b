"""What the graph of a decoder is written from: its sizes and habits, whatever its family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Rope:
    """Rotary positions: what `rope_parameters` of a config says."""

    theta: float = 10000.0
    kind: str = "default"
    told: Mapping[str, Any] | None = None  # the settings of that kind


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
    rope: Rope = Rope()
    window_rope: Rope | None = None  # of layers that see a window, where it is another one
    unrotated: tuple[int, ...] = ()  # layers without positions (SmolLM3)
    learned_offset: int = 0  # OPT's table of positions begins with two rows of no use
    parallel: bool = False  # attention and MLP read the same residual
    shared_norm: bool = False  # and the same norm of it
    pre_norm: bool = True  # is what attention and MLP read normed?
    sandwich: bool = False  # and what they add to the residual?
    post_norm: bool = False  # OPT 350m norms the residual itself, behind each sum
    final_norm: bool = True
    embedding_width: int = 0  # OPT 350m projects its embedding of so many columns; 0: it does not
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of what is added to the residual
    logits_scale: float = 1.0
    attention_scale: float = 0.0  # 0: one over the root of the head's size
    scale_by_layer: bool = False  # divided by the number of the layer
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    window: int = 0
    windowed: tuple[int, ...] | None = None  # layers that see a window; None: all of them
    tied: bool = True  # the head may be the embedding
    qk_norm: Literal["", "heads", "whole"] = ""  # of queries and keys: head by head, or all at once

    @property
    def qkv_apart(self) -> bool:
        """Is something done to queries and keys before the attention gets them?"""
        return bool(self.qk_norm) or (bool(self.rotary) and not self.turned_inside)

    @property
    def turned_inside(self) -> bool:
        """Does the runtime's attention rotate? It takes whole heads, of multiples of 16."""
        return self.rotary == self.stored_head and self.rotary % 16 == 0

    @property
    def stored_head(self) -> int:
        """The runtime's attention takes heads of multiples of 8: others are filled up with zeros,
        which change nothing."""
        return -(-self.head_dim // 8) * 8

    @property
    def qkv_rows(self) -> tuple[int, int, int]:
        """Outputs of the products for queries, keys and values."""
        size = self.stored_head
        return self.heads * size, self.kv_heads * size, self.kv_heads * size

    def window_of(self, layer: int) -> int:
        """Positions that a layer sees; 0: all of them."""
        return self.window if self.windowed is None or layer in self.windowed else 0

    def rope_of(self, layer: int) -> Rope | None:
        """None where a layer knows no positions."""
        if not self.rotary or layer in self.unrotated:
            return None
        has_own = self.window_rope is not None and self.window_of(layer)
        return self.window_rope if has_own else self.rope
