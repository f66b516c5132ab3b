"""A linear or convolution computed in bf16, for CPUs that multiply it in hardware."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lpot.backends.torch.modules.base import StandIn


class HalfModule(StandIn):
    """Floats in, floats out; the weight is kept in the narrower type only."""

    def __init__(self, original: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        from lpot.backends.torch.clone import Cloner

        self.stand_for(original)
        self.dtype = dtype
        self.inner = Cloner(original)()
        with torch.no_grad():
            for name, parameter in list(self.inner.named_parameters()):
                owner, _, leaf = name.rpartition(".")
                narrow = nn.Parameter(parameter.to(dtype), requires_grad=False)
                setattr(self.inner.get_submodule(owner), leaf, narrow)
        self.training = False

    def forward(self, input: torch.Tensor, *args: Any) -> torch.Tensor:
        result: torch.Tensor = self.inner(input.to(self.dtype), *args).float()
        return result

    @property
    def weight(self) -> Any:
        return self.inner.weight.float()

    @property
    def bias(self) -> Any:
        return None if self.inner.bias is None else self.inner.bias.float()
