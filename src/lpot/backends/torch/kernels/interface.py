"""What every executor offers: functions made once per op, called once per batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from lpot.backends.torch.kernels.affine import Affine
from lpot.backends.torch.weights import Weights

__all__ = ["Affine", "Geometry", "Kernel", "Run", "plain"]

Run = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Geometry:
    """A convolution's shape parameters; `dims` is 1, 2 or 3."""

    dims: int
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()


def plain(x: torch.Tensor) -> torch.Tensor:
    """Without a gradient, which no kernel has. Detaching costs, so it is done where needed."""
    return x.detach() if x.requires_grad else x


class Kernel(Protocol):
    """Each method returns a function from tensor to tensor.

    Inputs are float, or codes (kernels/codes.py) where a neighbour hands them over. The output is
    float, or codes with the parameters `outlet` when `emit` is set.
    """

    name: str

    def available(self) -> bool: ...

    def linear(
        self,
        weights: Weights,
        inlet: Affine,
        outlet: Affine | None = None,
        relu: bool = False,
        emit: bool = False,
    ) -> Run:
        """x @ weights.T + bias with a calibrated input."""
        ...

    def linear_dynamic(self, weights: Weights, relu: bool = False, reduced: bool = False) -> Run:
        """The same with the input's range taken from each batch; `reduced` uses 7 bits of it."""
        ...

    def conv(
        self,
        weights: Weights,
        geometry: Geometry,
        inlet: Affine,
        outlet: Affine,
        relu: bool = False,
        emit: bool = False,
    ) -> Run: ...
