"""Muon: steps of equal size in all directions of a weight, for short trainings.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), with steps as
large as AdamW's (Liu et al., "Muon is Scalable for LLM Training", 2025), so that learning rates
mean the same. torch has one of its own, in late versions and for matrices alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
            alike: dict[torch.Size, list[torch.Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    alike.setdefault(weight.shape, []).append(weight)
            for weights in alike.values():
                self._move(weights, group["lr"])
        return None

    def _move(self, weights: Sequence[torch.Tensor], rate: float) -> None:
        """Weights of one shape at once: many small products take longer than a few large ones."""
        ahead = torch.stack([self._ahead(weight) for weight in weights])
        size = SIZE * max(ahead.shape[1:]) ** 0.5
        for weight, step in zip(weights, orthogonal(ahead), strict=True):
            weight.mul_(1 - rate * DECAY)
            weight.add_(step.reshape(weight.shape), alpha=-rate * size)

    def _ahead(self, weight: torch.Tensor) -> torch.Tensor:
        known: dict[str, Any] = self.state[weight]
        if not known:
            known["mean"] = torch.zeros_like(weight)
        mean = known["mean"].lerp_(weight.grad, 1 - MOMENTUM)
        return torch.lerp(weight.grad, mean, MOMENTUM).flatten(1)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The same directions, all of about the same size; of a matrix, or of each of several.

    The iteration is a polynomial of the small square product, so that the long side of the matrix
    is met twice instead of ten times.
    """
    one, two, three = COEFFICIENTS
    tall = matrix.shape[-2] > matrix.shape[-1]
    found = matrix.mT if tall else matrix
    found = found / torch.linalg.matrix_norm(found, keepdim=True).clamp_min(1e-7)
    gram = found @ found.mT
    factor = same = torch.eye(gram.shape[-1])
    for _ in range(STEPS):
        step = one * same + two * gram + three * gram @ gram
        factor, gram = step @ factor, step @ gram @ step
    found = factor @ found
    return found.mT if tall else found
