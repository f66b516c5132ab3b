"""Modules for training with quantization in mind: floats that are rounded as int8 would be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

# -- Where to cut weights so that rounding them costs least, given what they are multiplied with.


# What may be left of a channel's range: fine steps near all of it, then halves.
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, *(2.0**-power for power in range(1, 12)))


def clipped(
    weight: torch.Tensor, axis: int | None, most: int, energy: torch.Tensor
) -> torch.Tensor:
    """The weight, each of its channels cut to the range that loses the least output energy.

    `energy` is the mean square of the activation that each weight meets, in a shape that goes
    along with the weight's. Weights that meet activations which round to nothing do nothing
    themselves: left as large as they are, they would only coarsen the steps of all others.
    """
    others = [index for index in range(weight.dim()) if index != axis]
    largest = weight.abs().amax(others, keepdim=True)
    kept, least = weight, torch.full_like(largest, torch.inf)
    for share in SHARES:
        bound = largest * share
        cut = torch.clamp(weight, -bound, bound)
        step = (bound / most).clamp(min=torch.finfo(weight.dtype).tiny)
        lost = ((torch.round(cut / step) * step - weight).square() * energy).sum(others, True)
        better = lost < least
        least = torch.where(better, lost, least)
        kept = torch.where(better, cut, kept)
    return kept


def input_energy(module: Any, x: torch.Tensor) -> torch.Tensor:
    """The mean square of an input's channels, in a shape that goes along with the weight's."""
    dims = module.weight.dim() - 2
    if not hasattr(module, "kernel_size"):
        along = x.square().reshape(-1, x.shape[-1]).mean(0)
        return along if module.weight.shape[-1] == len(along) else along[:, None]
    channels = x.dim() - dims - 1
    along = x.square().mean([index for index in range(x.dim()) if index != channels])
    if module.transposed:
        return along.reshape(-1, *(1,) * (dims + 1))
    each = along.reshape(module.groups, -1)  # one row for each group of output channels
    rows = each.repeat_interleave(module.out_channels // module.groups, 0)
    return rows.reshape(*rows.shape, *(1,) * dims)


MOMENTUM = 0.05  # how fast the input's range follows the batches
SMALLEST = 2.0**-60  # no step is zero


@dataclass(frozen=True)
class Rounding:
    """How an op rounds: along which axis of its weight, and to how many bits."""

    axis: int | None
    bits: int = 8
    weight_bits: int = 8


class Rounded:
    """Stands before a linear's or convolution's own class: input and weight are rounded.

    Gradients go straight through. The module keeps its class, attributes and state dict, so that
    training code which looks at them goes on working. The input's range follows the batches in
    train mode and stands still in eval mode; the first batch tells where weights are best cut (by
    MSE) before training. Where the model is only watched (`_widens`) the range takes in all that
    comes.
    """

    _axis: int | None
    _widens: bool
    _fresh: bool  # no batch was trained with yet
    _cut: int | None  # the weight's version after it was cut
    _input_levels: int
    _weight_levels: int
    low: torch.Tensor
    high: torch.Tensor
    training: bool
    weight: Any

    def forward(self, input: torch.Tensor, *args: Any) -> torch.Tensor:
        if self._widens:
            self._widen(input.detach())
        elif self.training:
            self._follow(input.detach())
        # An instance's own attribute hides the parameter of that name while the class computes.
        self.__dict__["weight"] = self._rounded_weight()
        try:
            found: torch.Tensor = super().forward(  # type: ignore[misc]
                self._rounded_input(input), *args
            )
        finally:
            del self.__dict__["weight"]
        return found

    def _follow(self, x: torch.Tensor) -> None:
        low, high = torch.aminmax(x)
        low, high = low.clamp(max=0.0), high.clamp(min=0.0)
        share = 1.0 if float(self.low) == float(self.high) == 0.0 else MOMENTUM
        self.low.lerp_(low, share)
        self.high.lerp_(high, share)
        if self._fresh and self.weight.requires_grad:
            energy = input_energy(self, self._rounded_input(x))
            with torch.no_grad():
                self.weight.copy_(clipped(self.weight, self._axis, self._weight_levels, energy))
            self._cut = self.weight._version
        self._fresh = False

    @property
    def is_untrained(self) -> bool:
        """Has nobody changed the weight since it was cut?"""
        return self._cut is not None and self._cut == self.weight._version

    def _widen(self, x: torch.Tensor) -> None:
        if x.numel():
            low, high = torch.aminmax(x)
            self.low.copy_(torch.minimum(self.low, low))
            self.high.copy_(torch.maximum(self.high, high))

    def _rounded_input(self, x: torch.Tensor) -> torch.Tensor:
        scale = ((self.high - self.low) / self._input_levels).clamp(min=SMALLEST)
        zero = torch.round(-self.low / scale).clamp(0, self._input_levels).to(torch.int32)
        # With 7 bits, too: the kernels keep what lies above the range, up to 255.
        return torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)

    def _rounded_weight(self) -> torch.Tensor:
        weight, most = self.weight, self._weight_levels
        if self._axis is None:
            scale = weight.detach().abs().max().clamp(min=SMALLEST) / most
            zero = torch.zeros((), dtype=torch.int32, device=weight.device)
            return torch.fake_quantize_per_tensor_affine(weight, scale, zero, -most, most)
        others = [index for index in range(weight.dim()) if index != self._axis]
        scale = weight.detach().abs().amax(others).clamp(min=SMALLEST) / most
        zeros = torch.zeros(len(scale), dtype=torch.int32, device=weight.device)
        return torch.fake_quantize_per_channel_affine(weight, scale, zeros, self._axis, -most, most)


def make_rounded(
    module: nn.Module,
    rounding: Rounding,
    span: tuple[float, float] | None = None,
    widens: bool = False,
) -> None:
    """Change the module's class in place; `make_plain` is the way back."""
    low, high = span or (0.0, 0.0)
    kind: Any = type(module)
    module.__class__ = _class(kind)
    module._axis, module._widens = rounding.axis, widens
    module._fresh, module._cut = True, None
    module._input_levels = (1 << rounding.bits) - 1
    module._weight_levels = (1 << (rounding.weight_bits - 1)) - 1
    module.register_buffer("low", torch.tensor(float(low), dtype=torch.float32), persistent=False)
    module.register_buffer("high", torch.tensor(float(high), dtype=torch.float32), persistent=False)


def make_plain(module: nn.Module) -> None:
    module.__class__ = type(module).__mro__[2]
    for name in ("low", "high"):
        delattr(module, name)
        module._non_persistent_buffers_set.discard(name)
    for name in ("_axis", "_widens", "_fresh", "_cut", "_input_levels", "_weight_levels"):
        del module.__dict__[name]


@cache
def _class(kind: type) -> type:
    """One class for each, so that copies of a model share it."""
    return type(f"Rounded{kind.__name__}", (Rounded, kind), {})
