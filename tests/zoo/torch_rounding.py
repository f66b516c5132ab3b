"""How far from FP32 would 8 bits put a net at best? FP32 itself answers, with noise as large as
the rounding of every weight and of every input of a linear or convolution.

Deep random nets with batch norms amplify whatever goes in: some lie 2 dB from FP32 by rounding
alone, others at 45. So INT8 is measured against this, not against a number for all.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_WEIGHTED = (nn.Linear, nn.modules.conv._ConvNd)


@contextmanager
def rounding_noise(module: nn.Module) -> Iterator[nn.Module]:
    """A copy of the module that is off by what rounding to 8 bits costs."""
    noisy = copy.deepcopy(module)
    with torch.no_grad():
        for part in noisy.modules():
            if not isinstance(part, _WEIGHTED) and not hasattr(part, "nf"):
                continue
            weight = part._parameters.get("weight")
            if weight is not None and weight.is_floating_point():
                _shake(weight, weight.flatten(1).abs().amax(1) / 127)
            part.register_forward_pre_hook(_shake_input)
        yield noisy


def _shake(weight: torch.Tensor, step: torch.Tensor) -> None:
    step = step.reshape(-1, *[1] * (weight.dim() - 1)).to(weight.dtype)
    weight.add_(step * (torch.rand_like(weight) - 0.5))


def _shake_input(module: nn.Module, args: tuple[Any, ...]) -> Any:
    if not args or not isinstance(args[0], torch.Tensor) or not args[0].numel():
        return None
    x = args[0]
    step = (x.max().clamp(min=0) - x.min().clamp(max=0)) / 255
    return (x + step * (torch.rand_like(x) - 0.5), *args[1:])
