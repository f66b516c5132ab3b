"""nn.MultiheadAttention with its projections in int8, ranges taken from each batch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from lpot.backends.torch.kernels import KERNELS, Run
from lpot.backends.torch.modules.base import LowModule
from lpot.backends.torch.weights import Weights


class LowAttention(LowModule):
    """The same inputs and outputs as the original in eval mode."""

    def __init__(
        self, original: Any, inner: Weights, outer: Weights, kernel: str, reduced: bool
    ) -> None:
        super().__init__(original, {"in_proj_weight": inner, "out_proj_weight": outer})
        self.kernel = kernel
        self.reduced = reduced
        # torch's fused encoder layer asks for these before it reads the raw weights.
        self._qkv_same_embed_dim = False
        self._project = self._linear(inner)
        self._leave = self._linear(outer)
        self._thirds: list[Run] | None = None

    def _linear(self, weights: Weights) -> Run:
        return KERNELS[self.kernel].linear_dynamic(weights, reduced=self.reduced)

    @property
    def in_proj_weight(self) -> torch.Tensor:
        return self.real("in_proj_weight")

    @property
    def weight(self) -> torch.Tensor:
        raise AttributeError("MultiheadAttention has in_proj_weight and out_proj, and no weight")

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        batched = query.dim() == 3
        first = not batched or self.batch_first
        sides = [side.unsqueeze(0) if not batched else side for side in (query, key, value)]
        if not first:
            sides = [side.transpose(0, 1) for side in sides]
        q, k, v = (self._heads(part) for part in self._projected(query, key, value, sides))
        if key_padding_mask is not None and not batched:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        mask = self._mask(q, k, attn_mask, key_padding_mask, is_causal)
        found, shares = _attend(q, k, v, mask, need_weights)
        out = self._leave(found.transpose(1, 2).reshape(q.shape[0], q.shape[2], self.embed_dim))
        if shares is not None and average_attn_weights:
            shares = shares.mean(dim=1)
        if not batched:
            return out.squeeze(0), None if shares is None else shares.squeeze(0)
        return (out if first else out.transpose(0, 1)), shares

    def _projected(
        self, query: Any, key: Any, value: Any, sides: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        if query is key and key is value:
            return tuple(self._project(sides[0]).chunk(3, dim=-1))
        if self._thirds is None:
            self._thirds = [self._linear(third) for third in _split(self.parts["in_proj_weight"])]
        return tuple(run(side) for run, side in zip(self._thirds, sides, strict=True))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], x.shape[1], self.num_heads, self.head_dim).transpose(1, 2)

    def _mask(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        attn_mask: torch.Tensor | None,
        key_padding_mask: torch.Tensor | None,
        is_causal: bool,
    ) -> torch.Tensor | None:
        """Both masks as one float tensor to be added, None when there is none."""
        total: torch.Tensor | None = None
        if is_causal and attn_mask is None:
            attn_mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
        if attn_mask is not None:
            total = _additive(attn_mask)
            if total.dim() == 3:
                total = total.reshape(q.shape[0], self.num_heads, *total.shape[1:])
        if key_padding_mask is not None:
            padding = _additive(key_padding_mask)[:, None, None, :]
            total = padding if total is None else total + padding
        return total

    def facts(self) -> dict[str, Any]:
        return {"kernel": self.kernel, **({"reduced": True} if self.reduced else {})}


def _additive(mask: torch.Tensor) -> torch.Tensor:
    if mask.dtype != torch.bool:
        return mask.float()
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill_(mask, -math.inf)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, shares: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not shares:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask), None
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
    return weights @ v, weights


def _split(whole: Weights) -> list[Weights]:
    """Query, key and value rows of the joint projection, each on its own."""
    scales = whole.scale.chunk(3) if whole.axis is not None else (whole.scale,) * 3
    biases = (None,) * 3 if whole.bias is None else whole.bias.chunk(3)
    return [
        Weights(rows.contiguous(), scale.contiguous(), whole.axis, bias)
        for rows, scale, bias in zip(whole.values.chunk(3), scales, biases, strict=True)
    ]
