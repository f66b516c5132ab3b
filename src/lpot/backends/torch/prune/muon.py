"""Muon: steps of equal size in all directions of a weight, for short trainings.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), with steps as
large as AdamW's (Liu et al., "Muon is Scalable for LLM Training", 2025), so that learning rates
mean the same. torch has one of its own, in late versions and for matrices alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

MOMENTUM = 0.95
DECAY = 0.01
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration
STEPS = 5
SIZE = 0.2  # the root mean square of an AdamW step, over the learning rate


class Muon(torch.optim.Optimizer):  # type: ignore[misc]
    """For weights of two dimensions and more: a convolution's is one row for each output."""

    def __init__(self, weights: Iterable[torch.Tensor], lr: float) -> None:
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, group["lr"])
        return None

    def _move(self, weight: torch.Tensor, rate: float) -> None:
        known: dict[str, Any] = self.state[weight]
        if not known:
            known["mean"] = torch.zeros_like(weight)
        mean = known["mean"].lerp_(weight.grad, 1 - MOMENTUM)
        ahead = torch.lerp(weight.grad, mean, MOMENTUM).flatten(1)
        step = orthogonal(ahead).reshape(weight.shape)
        weight.mul_(1 - rate * DECAY)
        weight.add_(step, alpha=-rate * SIZE * max(ahead.shape) ** 0.5)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The same directions, all of about the same size."""
    one, two, three = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    found = matrix.T if tall else matrix
    found = found / found.norm().clamp_min(1e-7)
    for _ in range(STEPS):
        gram = found @ found.T
        found = one * found + (two * gram + three * gram @ gram) @ found
    return found.T if tall else found
