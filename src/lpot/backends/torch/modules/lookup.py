"""Embedding tables in int8: a quarter of the memory; rows become float as they are read."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lpot.backends.torch.modules.base import LowModule
from lpot.backends.torch.weights import Weights


class LowEmbedding(LowModule):
    """nn.Embedding with one scale per row, or one for all."""

    def __init__(self, original: nn.Module, weights: Weights) -> None:
        super().__init__(original, {"weight": weights})

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weights = self.parts["weight"]
        rows = functional.embedding(input, weights.values).float()
        if weights.axis is None:
            return rows * weights.scale
        return rows * weights.scale[input].unsqueeze(-1)

    def facts(self) -> dict[str, Any]:
        return {}


class LowEmbeddingBag(LowModule):
    """nn.EmbeddingBag; the sum or mean is taken over rows made float."""

    def __init__(self, original: nn.Module, weights: Weights) -> None:
        super().__init__(original, {"weight": weights})

    def forward(
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        # Only the rows that occur are made float; the bag then runs over this small table.
        used, where = torch.unique(input, return_inverse=True)
        weights = self.parts["weight"]
        scale = weights.scale if weights.axis is None else weights.scale[used].unsqueeze(-1)
        table = weights.values[used].float() * scale
        padding = self._padding(used)
        return functional.embedding_bag(
            where.to(input.dtype),
            table,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )

    def _padding(self, used: torch.Tensor) -> int | None:
        """Where the padding row went in the small table."""
        if self.padding_idx is None:
            return None
        found = (used == self.padding_idx).nonzero()
        return int(found[0]) if len(found) else None

    def facts(self) -> dict[str, Any]:
        return {}
