"""Random nets made like trained ones: norms that have seen data, no layer that gives zeros only.

Fresh weights of many packages are not meant to be run. Batch norms have gains of 0.02, so that a
deep net's values fall to 1e-30, or statistics that fit no data; heads are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

BATCHES = 16  # that batch norms take their statistics from, as one: deep in a net of small images
# there is one pixel left, and statistics of two of them only amplify noise
FEW = 4  # of large images
LARGE = 128  # pixels


def settled(module: Any, draw: Callable[[], Any]) -> Any:
    if not isinstance(module, nn.Module):  # an exported program
        return module
    torch.manual_seed(0)
    parts = list(module.modules())
    norms = [m for m in parts if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for part in parts:
            _wake(part)
        for norm in norms:
            _vary(norm)
        module.eval()
        if norms:
            _look(module, norms, draw)
    return module.eval()


def _wake(part: nn.Module) -> None:
    weight = getattr(part, "weight", None)
    if type(part) not in (nn.Linear, nn.Conv2d) or weight is None or weight.is_meta:
        return
    if not weight.any():
        weight.normal_(0, weight[0].numel() ** -0.5)


def _vary(norm: Any) -> None:
    norm.momentum = None  # all passes count alike
    if norm.weight is not None:
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.normal_(0, 0.1)


def _look(module: nn.Module, norms: list[Any], draw: Callable[[], Any]) -> None:
    """Only the norms train: detectors in training ask for targets."""
    for norm in norms:
        norm.train()
    first = draw()
    large = isinstance(first, torch.Tensor) and first.shape[-1] > LARGE
    batch = _joined([first, *(draw() for _ in range((FEW if large else BATCHES) - 1))])
    if isinstance(batch, dict):
        module(**batch)
    else:
        module(batch)


def _joined(batches: list[Any]) -> Any:
    first = batches[0]
    if isinstance(first, dict):
        return {name: torch.cat([batch[name] for batch in batches]) for name in first}
    if isinstance(first, list):
        return [image for batch in batches for image in batch]
    return torch.cat(batches)
