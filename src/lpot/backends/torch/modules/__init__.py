"""The modules that take the place of float ones: they look like the original and run in int8."""

from __future__ import annotations

from lpot.backends.torch.modules.attention import LowAttention
from lpot.backends.torch.modules.base import LowModule
from lpot.backends.torch.modules.dense import LowConv, LowLinear
from lpot.backends.torch.modules.lookup import LowEmbedding, LowEmbeddingBag
from lpot.backends.torch.modules.recurrent import LowRecurrent

__all__ = [
    "LowAttention",
    "LowConv",
    "LowEmbedding",
    "LowEmbeddingBag",
    "LowLinear",
    "LowModule",
    "LowRecurrent",
]
