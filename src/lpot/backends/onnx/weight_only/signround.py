"""Rounding learned by the sign of a gradient, in PyTorch.

Cheng et al., "Optimize Weight Rounding via Signed Gradient Descent for the Quantization of LLMs"
(AutoRound), EMNLP 2024: each weight has an offset of at most half a step that is added before it is
rounded, each group a share of its range that is kept. Both take steps of equal length against the
sign of the gradient, shorter ones as time goes by, and rounding passes gradients through unchanged.
The error is that of one product, as its Hessian tells it: all inputs at once, so that nothing is
drawn at random.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError
from lpot.core.weight_only.grid import Codes, Floats, Format, Rounded, fit, in_groups

STEPS = 200
OFFSET = 0.5  # steps of the grid that rounding may be moved by
RANGE = (0.5, 1.5)  # of the scale that the clip search found
ROWS = 4096  # that are worked on at a time
DAMPING = 0.01  # share of the mean diagonal that is added to it, as for GPTQ


def need_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ConfigError(
            "signround follows gradients, which needs PyTorch: pip install 'lpot[pytorch]', or use "
            "learned, which needs numpy alone",
            path="quantization.weight_only.algorithm",
        ) from error


def signround(weight: Floats, hessian: Floats, fmt: Format, steps: int = STEPS) -> Rounded:
    """The weight ([N, K]) on the grid; `hessian` ([K, K]) is the mean of x xᵀ over the inputs."""
    torch = need_torch()
    if not np.isfinite(hessian).all():
        hessian = np.eye(len(hessian), dtype=np.float32)
    curve = np.array(hessian, np.float32)
    curve[np.diag_indices(len(curve))] += DAMPING * float(np.diagonal(curve).mean())
    energy = in_groups(np.diagonal(curve)[None].astype(np.float32), fmt)[0]
    parts = [
        _rows(torch, weight[at : at + ROWS], curve, energy, fmt, steps)
        for at in range(0, len(weight), ROWS)
    ]
    codes, scales, zeros = zip(*parts, strict=True)
    return Rounded(
        fmt,
        np.concatenate(codes),
        np.concatenate(scales),
        None if fmt.symmetric else np.concatenate(zeros),
    )


def _rows(
    torch: Any, weight: Floats, curve: Floats, energy: Floats, fmt: Format, steps: int
) -> tuple[Codes, Floats, Codes]:
    groups = in_groups(np.ascontiguousarray(weight, np.float32), fmt)
    found, offsets = fit(groups, fmt, energy)
    middle = np.full(found.shape, fmt.middle, np.uint8) if offsets is None else offsets
    rows, columns = weight.shape
    given, bend = torch.from_numpy(groups), torch.from_numpy(curve)
    first = torch.from_numpy(found[..., None])
    zeros = torch.from_numpy(middle[..., None].astype(np.float32))
    moved = torch.zeros_like(given, requires_grad=True)
    kept = torch.ones_like(first, requires_grad=True)
    # Each row is judged for itself: the best of all steps is kept, the first among them.
    least = torch.full((rows,), float("inf"))
    best = torch.zeros_like(given), first.clone()
    for step in range(steps + 1):
        scales = first * kept
        wish = given / scales + moved
        codes = torch.clamp(wish + (torch.round(wish) - wish).detach() + zeros, 0, fmt.top)
        values = (codes - zeros) * scales
        with torch.no_grad():
            off = (values - given).reshape(rows, -1)[:, :columns]
            slope = off @ bend
            error = (slope * off).sum(dim=1)
            better = error < least
            least = torch.where(better, error, least)
            chosen = better[:, None, None]
            best = torch.where(chosen, codes, best[0]), torch.where(chosen, scales, best[1])
        if step == steps:
            break
        surrogate = (values.reshape(rows, -1)[:, :columns] * slope).sum()
        length = (1 - step / steps) / steps
        pulls = torch.autograd.grad(surrogate, (moved, kept))
        with torch.no_grad():
            for unknown, pull, ends in zip(
                (moved, kept), pulls, ((-OFFSET, OFFSET), RANGE), strict=True
            ):
                unknown -= length * torch.sign(pull)
                unknown.clamp_(*ends)
    codes, scales = (part.detach().numpy() for part in best)
    flat = np.ascontiguousarray(codes.reshape(rows, -1)[:, :columns])
    return flat.astype(np.uint8), np.ascontiguousarray(scales[..., 0]), middle
