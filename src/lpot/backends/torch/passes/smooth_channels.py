"""SmoothQuant in front of linears: what the input loses is given to the weight.

The factors are powers of two, so that FP32 results stay bit for bit. All linears that read one
tensor share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.channels import Group
from lpot.backends.torch.clone import Cloner
from lpot.backends.torch.kinds import Layer
from lpot.backends.torch.weights import float_weights
from lpot.core.ptq.ranges import NOISY
from lpot.core.ptq.smoothquant import ROWS, best_factors

GAIN = 1.5  # times less noise, from which on smoothing is worth a look
QUIET = 1e-4  # noise that is not worth a product in front of the op, but a norm does it for nothing


@dataclass(frozen=True, eq=False)
class Smooth:
    """By what the input of some linears is divided, channel by channel."""

    ops: tuple[str, ...]
    factors: torch.Tensor
    span: tuple[float, float]  # of the input once divided
    norm: str | None  # the layer norm that can do it by its weights

    @cached_property
    def product(self) -> torch.Tensor:
        """What the input is multiplied with: the inverse of a power of two is exact."""
        return 1.0 / self.factors

    @cached_property
    def key(self) -> bytes:
        found: bytes = self.factors.numpy().tobytes()
        return found


def find_smooth(groups: Iterable[Group], layers: Mapping[str, Layer]) -> dict[str, Smooth]:
    """Op → what its input is divided by, for the ops whose input is noisy in int8 and gains by it.

    All readers of a tensor have a say, so that a weight does not depend on what else is low.
    """
    found: dict[str, Smooth] = {}
    for group in groups:
        weight = _read(group.ops, layers)
        if not (np.isfinite(group.extremes.largest).all() and np.isfinite(weight).all()):
            continue
        choice = best_factors(group.extremes, group.power, weight)
        least = NOISY if group.norm is None else QUIET
        if choice.before >= max(least, GAIN * choice.after):
            factors = torch.from_numpy(choice.factors.astype(np.float32))
            span = group.extremes.smoothed(choice.factors)
            smooth = Smooth(group.ops, factors, span, group.norm)
            found.update(dict.fromkeys(group.ops, smooth))
    return found


def scaled_norm(norm: nn.Module, product: torch.Tensor) -> nn.Module:
    """A copy of a layer norm that gives its channels multiplied."""
    twin = Cloner(norm)()
    for name, old in norm.named_parameters():
        setattr(twin, name, nn.Parameter(old.detach() * product, requires_grad=old.requires_grad))
    return twin


def _read(ops: Iterable[str], layers: Mapping[str, Layer]) -> np.ndarray:
    """The weights of all ops that read a tensor, one row for each output; of many rows some."""
    weights = [float_weights(layers[op], layers[op].norm)[0] for op in ops]
    stride = max(1, sum(map(len, weights)) // (2 * ROWS))
    return np.concatenate([weight[::stride].float().numpy() for weight in weights])
