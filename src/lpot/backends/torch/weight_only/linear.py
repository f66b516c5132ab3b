"""A linear layer whose weight is stored in few bits."""

from __future__ import annotations

import torch
from torch import nn

from lpot.backends.torch.weight_only.kernels import KERNELS
from lpot.core.weight_only.grid import Rounded


class WeightOnlyLinear(nn.Module):  # type: ignore[misc]
    """nn.Linear for inference; `kernel` names what multiplies."""

    def __init__(self, rounded: Rounded, bias: torch.Tensor | None, kernel: str) -> None:
        super().__init__()
        self.out_features, self.in_features = rounded.codes.shape
        self.kernel = kernel
        self.bits = rounded.format.bits
        packed = KERNELS[kernel].pack(rounded)
        self._names = tuple(packed)
        for name, tensor in packed.items():
            self.register_buffer(f"held_{name}", tensor)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = {name: self.get_buffer(f"held_{name}") for name in self._names}
        flat = x.reshape(-1, self.in_features).to(torch.float32)
        found = KERNELS[self.kernel].run(flat, held)
        if self.bias is not None:
            found = found + self.bias
        return found.reshape(*x.shape[:-1], self.out_features).to(x.dtype)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bits={self.bits}, kernel={self.kernel!r}"
