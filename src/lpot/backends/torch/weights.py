"""An op's weights as plain int8 tensors: quantized once per granularity, packed by the kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.kinds import Layer, is_hf_conv1d
from lpot.core.errors import UnsupportedOp
from lpot.core.numerics.rounding import QuantParams, dequantize, quantize_weight
from lpot.core.recipe import TensorConfig


@dataclass(frozen=True, eq=False)
class Weights:
    """real = values * scale, along `axis` or for the whole tensor (axis None).

    `smooth` is what an input is multiplied with first, one factor for each of its channels.
    `packs` holds what kernels made of it; it is derived and never saved.
    """

    values: torch.Tensor  # int8
    scale: torch.Tensor  # float32: one per channel, or one
    axis: int | None
    bias: torch.Tensor | None = None
    smooth: torch.Tensor | None = None
    packs: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Weights:
        """Copies of a model share it: nothing in it changes, and packs can't be copied."""
        return self

    def real(self) -> torch.Tensor:
        """The float32 weights that the integers stand for, smoothing undone."""
        scale: Any = self.scale.numpy() if self.axis is not None else float(self.scale[0])
        zero = np.zeros(len(scale), np.int32) if self.axis is not None else 0
        params = QuantParams(scale, zero, -127, 127, "int8", self.axis)
        found = torch.from_numpy(dequantize(self.values.numpy(), params))
        return found if self.smooth is None else found * self.smooth


def quantize_tensor(
    op: str,
    weight: torch.Tensor,
    config: TensorConfig,
    axis: int,
    bias: torch.Tensor | None = None,
) -> Weights:
    """int8 weights of one tensor; `config` says per channel or per tensor."""
    per_channel = config.granularity != "per_tensor"
    array = weight.detach().float().contiguous().numpy()
    try:
        values, params = quantize_weight(
            array, axis if per_channel else None, config.scheme or "sym", config.bits or 8
        )
    except ValueError as error:
        raise UnsupportedOp(op, f"{error}; keep the op in fp32") from error
    scale = torch.from_numpy(np.atleast_1d(np.asarray(params.scale, dtype=np.float32)).copy())
    own_bias = None if bias is None else bias.detach().float().clone()
    return Weights(torch.from_numpy(values), scale, axis if per_channel else None, own_bias)


def quantize_layer(
    layer: Layer, config: TensorConfig, norm: nn.Module | None, factors: torch.Tensor | None = None
) -> Weights:
    """int8 weights of a linear, convolution or lookup, with the batch norm behind it folded in.

    `factors` are what a linear's input is divided by.
    """
    weight, bias = float_weights(layer, norm)
    if factors is not None:
        weight = weight * factors
    return quantize_tensor(layer.name, weight, config, layer.spec.axis, bias)


def float_weights(layer: Layer, norm: nn.Module | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight and bias as the kernels want them: output channels first for linears."""
    module = layer.module
    weight, bias = module.weight.detach(), getattr(module, "bias", None)
    if is_hf_conv1d(module):
        weight = weight.t()
    if norm is not None:
        return _fold(weight, bias, norm, layer.spec.axis, getattr(module, "groups", 1))
    return weight, None if bias is None else bias.detach()


def _fold(
    weight: torch.Tensor, bias: torch.Tensor | None, norm: Any, axis: int, groups: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """y = norm(conv(x)) as one convolution, computed in double."""
    mean, variance = norm.running_mean.double(), norm.running_var.double()
    if hasattr(norm, "eps"):
        gain = torch.rsqrt(variance + norm.eps)
        if norm.weight is not None:
            gain = gain * norm.weight.detach().double()
    else:
        gain = _measured_gain(norm)
    shift = norm.bias.detach().double() if norm.bias is not None else torch.zeros_like(mean)
    old = bias.detach().double() if bias is not None else torch.zeros_like(mean)
    shape = [1] * weight.dim()
    if axis == 1 and groups > 1:
        # A grouped transposed convolution holds its output channels group by group.
        grouped = gain.reshape(groups, 1, -1, *shape[2:])
        split = weight.double().reshape(groups, -1, *weight.shape[1:])
        folded = (split * grouped).reshape(weight.shape)
    else:
        shape[axis] = -1
        folded = weight.double() * gain.reshape(shape)
    return folded.float(), ((old - mean) * gain + shift).float()


def _measured_gain(norm: nn.Module) -> torch.Tensor:
    """DETR's frozen norms have a number in their forward: what they do to 1 tells it."""
    ones = torch.ones(1, len(norm.running_mean), 1, 1, dtype=torch.float32)
    with torch.no_grad():
        gain: torch.Tensor = (norm(ones) - norm(torch.zeros_like(ones))).flatten().double()
    return gain
