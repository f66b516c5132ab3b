"""Integer arithmetic spelled out in plain torch: slow, exact, and there on every machine."""

from __future__ import annotations

import torch
from torch.nn import functional

from lpot.backends.torch.kernels.codes import affine_of, encode, integers, is_coded, rounded
from lpot.backends.torch.kernels.interface import Affine, Geometry, Run
from lpot.backends.torch.weights import Weights

_CONV = {
    (1, False): functional.conv1d,
    (2, False): functional.conv2d,
    (3, False): functional.conv3d,
    (1, True): functional.conv_transpose1d,
    (2, True): functional.conv_transpose2d,
    (3, True): functional.conv_transpose3d,
}


class ReferenceKernel:
    """Doubles hold every sum of u8 x s8 products exactly: rounding happens only where it must.

    Floats are nearly as good and much faster, where only large differences are looked for.
    """

    name = "reference"

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        self._dtype = dtype

    def available(self) -> bool:
        return True

    def linear(
        self,
        weights: Weights,
        inlet: Affine,
        outlet: Affine | None = None,
        relu: bool = False,
        emit: bool = False,
    ) -> Run:
        whole = weights.values.to(self._dtype)

        def run(x: torch.Tensor) -> torch.Tensor:
            total = functional.linear(_integers(x, inlet).to(self._dtype), whole)
            return _finish(total, weights, inlet.scale, -1, relu, outlet, emit)

        return run

    def linear_dynamic(self, weights: Weights, relu: bool = False, reduced: bool = False) -> Run:
        levels = 127 if reduced else 255
        whole = weights.values.to(self._dtype)

        def run(x: torch.Tensor) -> torch.Tensor:
            inlet = measured(x, levels)
            total = functional.linear(_integers(x, inlet).to(self._dtype), whole)
            return _finish(total, weights, inlet.scale, -1, relu, None, False)

        return run

    def conv(
        self,
        weights: Weights,
        geometry: Geometry,
        inlet: Affine,
        outlet: Affine | None,
        relu: bool = False,
        emit: bool = False,
    ) -> Run:
        op = _CONV[geometry.dims, geometry.transposed]
        whole = weights.values.to(self._dtype)
        options = {
            "stride": geometry.stride,
            "padding": geometry.padding,
            "dilation": geometry.dilation,
            "groups": geometry.groups,
        }
        if geometry.transposed:
            options["output_padding"] = geometry.output_padding

        def run(x: torch.Tensor) -> torch.Tensor:
            values = _integers(x, inlet).to(self._dtype)
            channels = -1 - geometry.dims
            return _finish(
                op(values, whole, **options), weights, inlet.scale, channels, relu, outlet, emit
            )

        return run


def _integers(x: torch.Tensor, inlet: Affine) -> torch.Tensor:
    """The input's integers less their zero point, as doubles."""
    if is_coded(x):
        return integers(x).double() - affine_of(x).zero_point
    return rounded(x, inlet).double() - inlet.zero_point


def measured(x: torch.Tensor, levels: int) -> Affine:
    """The range of one batch."""
    low, high = (min(float(x.min()), 0.0), max(float(x.max()), 0.0)) if x.numel() else (0.0, 0.0)
    scale = (high - low) / levels or 1.0
    return Affine(scale, max(0, min(levels, round(-low / scale))))


def _finish(
    total: torch.Tensor,
    weights: Weights,
    scale: float,
    channels: int,
    relu: bool,
    outlet: Affine | None,
    emit: bool,
) -> torch.Tensor:
    """Sums to real numbers, bias, relu, and the output's own rounding."""
    shape = [1] * total.dim()
    shape[channels] = -1
    real = total * (weights.scale.double() * scale).reshape(
        shape if weights.axis is not None else [-1]
    )
    if weights.bias is not None:
        real = real + weights.bias.double().reshape(shape)
    if relu:
        real = real.clamp(min=0)
    if outlet is None:
        return real.float()
    if emit:
        return encode(real.float(), outlet)
    return (rounded(real, outlet) - outlet.zero_point) * outlet.scale
