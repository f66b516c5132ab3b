"""Is an executor right? It computes the very call it is to serve, beside the reference."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import cache

import torch

from lpot.backends.torch.abilities import saturates
from lpot.backends.torch.kernels import KERNELS, Affine, Geometry, Run
from lpot.backends.torch.kernels.codes import decode, encode
from lpot.backends.torch.kernels.engine import FusedSum
from lpot.backends.torch.kernels.reference import ReferenceKernel
from lpot.backends.torch.weights import Weights

logger = logging.getLogger(__name__)

STEPS = 1.6  # of the output's 255: its own rounding is half of one, other orders of sums add some
_MOST_PRODUCTS = 1 << 29  # larger batches are cut: the comparison must stay a matter of moments
_REFERENCE = ReferenceKernel(torch.float32)


@dataclass(frozen=True)
class Call:
    """What an op is asked for: shapes, and whether values come and go as uint8 (`inside`)."""

    weight: tuple[int, ...]
    shape: tuple[int, ...]  # of the input
    geometry: Geometry | None = None  # None for a linear
    inside: bool = False
    dynamic: bool = False
    axis: int | None = 0

    @property
    def channels(self) -> int:
        """Outputs of the op."""
        shape = self.geometry
        if shape is None or not shape.transposed:
            return self.weight[0]
        return self.weight[1] * shape.groups

    @property
    def batched(self) -> Call:
        """With a batch dimension, as the kernels see it, and no more of it than can be afforded."""
        lead = 1 if self.geometry is None else self.geometry.dims + 1
        shape = self.shape if len(self.shape) > lead else (1, *self.shape)
        products = math.prod(shape[1:]) * math.prod(self.weight)
        products //= shape[-1] if self.geometry is None else shape[1]
        most = max(1, _MOST_PRODUCTS // max(1, products))
        return replace(self, shape=(min(shape[0], most), *shape[1:]))


@cache
def agrees(kernel: str, call: Call) -> bool:
    """Are two runs of the executor within a step or two of the reference? With as many bits as
    this CPU's activations have: fbgemm's grouped convolutions overflow with 8 even on VNNI."""
    call = call.batched
    if 0 in call.shape:
        return True
    try:
        off = max(_steps_off(kernel, call))
    except RuntimeError as error:
        logger.debug("%s can't compute %s: %s", kernel, call, error)
        return False
    if not off <= STEPS:
        logger.warning(
            "torch's %s gives wrong results here (off by %.0f steps of 255 for a weight of %s "
            "and an input of %s): it is not used for such ops",
            *(kernel, off, list(call.weight), list(call.shape)),
        )
    return off <= STEPS


def _steps_off(kernel: str, call: Call) -> list[float]:
    """How far a few runs are from the reference, in steps of the output."""
    levels = 128 if call.dynamic or saturates() else 256
    weights, inlet = draw(call), Affine(0.02, levels // 2)
    x = _random(call.shape, levels).float().sub_(inlet.zero_point).mul_(inlet.scale)
    exact = runner(_REFERENCE, call, weights, inlet, None)(x)
    span = float(exact.abs().max())
    outlet = Affine(max(span, 1e-6) / 127, 128)
    given = encode(x, inlet) if call.inside else x
    run = runner(KERNELS[kernel], call, weights, inlet, outlet)
    found = [run(given), run(given)]
    if call.geometry is not None and _can_sum(kernel, call):
        # It overwrites the other summand; here that is zero.
        nothing = encode(torch.zeros_like(exact), outlet)
        fused = FusedSum(weights, call.geometry, inlet, outlet, relu=False)
        found.append(fused(given, nothing))
    return [float((decode(one) - exact).abs().max()) / outlet.scale for one in found]


def draw(call: Call) -> Weights:
    """Weights of all sizes, for a comparison."""
    values = (_random(call.weight, 255) - 127).to(torch.int8)
    count = 1 if call.axis is None else call.weight[call.axis]
    scale = 0.004 + 0.004 * noise((count,), seed=1)
    bias = 2 * noise((call.channels,), seed=2) - 1
    return Weights(values, scale, call.axis, bias)


def runner(
    kernel: object, call: Call, weights: Weights, inlet: Affine, outlet: Affine | None
) -> Run:
    """The function an op with this call would run; the reference needs no outlet."""
    executor: ReferenceKernel = kernel  # type: ignore[assignment]
    if call.dynamic:
        return executor.linear_dynamic(weights, reduced=True)
    emit = call.inside and outlet is not None
    if call.geometry is None:
        return executor.linear(weights, inlet, outlet if emit else None, emit=emit)
    return executor.conv(weights, call.geometry, inlet, outlet, emit=emit)


def _can_sum(kernel: str, call: Call) -> bool:
    shape = call.geometry
    fits = shape is not None and shape.dims == 2 and not shape.transposed
    return call.inside and fits and kernel in ("onednn", "onednn_float")


def noise(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Between 0 and 1; the user's own random numbers go on as if nothing had been drawn."""
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=draw, dtype=torch.float32)


def _random(shape: tuple[int, ...], levels: int) -> torch.Tensor:
    return torch.randint(0, levels, shape, generator=torch.Generator().manual_seed(3))
