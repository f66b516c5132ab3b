"""Modules for training with quantization in mind: floats that are rounded as int8 would be."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

MOMENTUM = 0.05  # how fast the input's range follows the batches


class Rounded(nn.Module):  # type: ignore[misc]
    """A linear or convolution whose input and weight are rounded, with gradients straight through.

    The weight stays the float parameter of `inner`, which the optimizer moves. The input's range
    follows the batches in train mode and stands still in eval mode.
    """

    def __init__(
        self,
        inner: nn.Module,
        axis: int | None,
        bits: int = 8,
        span: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        self.inner = inner
        self.axis = axis
        self.levels = (1 << bits) - 1
        low, high = span or (0.0, 0.0)
        self.register_buffer("low", torch.tensor(float(low)))
        self.register_buffer("high", torch.tensor(float(high)))

    @property
    def weight(self) -> Any:
        return self.inner.weight

    @property
    def bias(self) -> Any:
        return self.inner.bias

    def forward(self, input: torch.Tensor, *args: Any) -> torch.Tensor:
        if self.training:
            self._follow(input.detach())
        parameters = {"weight": self._rounded_weight()}
        found: torch.Tensor = torch.func.functional_call(
            self.inner, parameters, (self._rounded_input(input), *args)
        )
        return found

    def _follow(self, x: torch.Tensor) -> None:
        low, high = torch.aminmax(x)
        if float(self.low) == float(self.high) == 0.0:
            self.low.copy_(low.clamp(max=0.0))
            self.high.copy_(high.clamp(min=0.0))
            return
        self.low.lerp_(low.clamp(max=0.0), MOMENTUM)
        self.high.lerp_(high.clamp(min=0.0), MOMENTUM)

    def _rounded_input(self, x: torch.Tensor) -> torch.Tensor:
        scale = ((self.high - self.low) / self.levels).clamp(min=2.0**-60)
        zero = torch.round(-self.low / scale).clamp(0, 255).to(torch.int32)
        return torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)

    def _rounded_weight(self) -> torch.Tensor:
        weight = self.inner.weight
        if self.axis is None:
            scale = weight.detach().abs().max().clamp(min=2.0**-60) / 127
            zero = torch.zeros((), dtype=torch.int32)
            return torch.fake_quantize_per_tensor_affine(weight, scale, zero, -127, 127)
        others = [index for index in range(weight.dim()) if index != self.axis]
        scale = weight.detach().abs().amax(others).clamp(min=2.0**-60) / 127
        zeros = torch.zeros(len(scale), dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(weight, scale, zeros, self.axis, -127, 127)
