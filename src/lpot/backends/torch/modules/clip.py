"""Where to cut weights so that rounding them costs least, given what they are multiplied with."""

from __future__ import annotations

from typing import Any

import torch

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
