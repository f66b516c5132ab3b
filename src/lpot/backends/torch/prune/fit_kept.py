"""The weights that are left beside zeros, fitted to what the full model gives: least squares.

Frantar and Alistarh, "SparseGPT" (2023), and Hubara et al., "Accelerated Sparse Neural Training"
(AdaPrune, 2021), with the asymmetric targets of refit.py: each layer makes up for the errors of
those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.prune.refit import layers_in_order, normal_equations
from lpot.core.batch import Inputs
from lpot.core.compress.masks import Mask

STEPS = 60  # of conjugate gradients
HELD = 1e-2  # of the mean square: how firmly the weights that are there are held


def fit_kept(
    student: nn.Module, teacher: nn.Module, keep: Mapping[str, Mask], batches: Sequence[Inputs]
) -> list[str]:
    """In place, in the order of the run; the names of the layers fitted. What is zero stays zero,
    and the module's mode is as it was."""
    mode = student.training
    student.eval()
    fitted = []
    try:
        for name in layers_in_order(student, batches[0]):
            mask = keep.get(f"{name}.weight")
            if mask is None:
                continue
            found = normal_equations(student, teacher, name, batches)
            if found is not None:
                _fit(student.get_submodule(name), *found, torch.from_numpy(mask))
                fitted.append(name)
    finally:
        student.train(mode)
    return fitted


def _fit(layer: Any, gram: torch.Tensor, cross: torch.Tensor, keep: torch.Tensor) -> None:
    """`gram` and `cross` have a row for the bias at their end."""
    weight = layer.weight.detach().flatten(1).double()
    mask, start = keep.flatten(1).double(), weight
    size = weight.shape[1]
    if layer.bias is not None:
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        start = torch.cat([weight, layer.bias.detach().double()[:, None]], 1)
        size += 1
    gram, cross = gram[:size, :size], cross[:size]
    hold = HELD * gram.diagonal().mean().clamp_min(1e-12)
    held = gram + hold * torch.eye(size, dtype=gram.dtype)
    made = _solved(held, cross.T + hold * start, start * mask, mask).float()
    if not bool(torch.isfinite(made).all()):
        return
    with torch.no_grad():
        layer.weight.copy_(made[:, : weight.shape[1]].reshape(layer.weight.shape))
        if layer.bias is not None:
            layer.bias.copy_(made[:, -1])


def _solved(
    gram: torch.Tensor, wanted: torch.Tensor, start: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Rows w with w @ gram = wanted where the mask is one, zero elsewhere: preconditioned conjugate
    gradients, for all rows at once."""
    inverse = mask / gram.diagonal()
    found, rest = start, (wanted - start @ gram) * mask
    along = rest * inverse
    slope = (rest * along).sum(1, keepdim=True)
    for _ in range(STEPS):
        if not bool((slope > 0).any()):
            break
        moved = (along @ gram) * mask
        step = slope / (along * moved).sum(1, keepdim=True).clamp_min(1e-300)
        found, rest = found + step * along, rest - step * moved
        turned = rest * inverse
        after = (rest * turned).sum(1, keepdim=True)
        along, slope = turned + after / slope.clamp_min(1e-300) * along, after
    return found
