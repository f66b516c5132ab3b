"""torch.ops.onednn: uint8 tensors in, float sums out, so the output is never rounded to 8 bits."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lpot.backends.torch.kernels.codes import affine_of, integers, is_coded, plain_integers
from lpot.backends.torch.kernels.engine import EngineKernel
from lpot.backends.torch.kernels.interface import Affine, Geometry, Run, plain
from lpot.backends.torch.kernels.latest import Latest
from lpot.backends.torch.kernels.reference import measured
from lpot.backends.torch.weights import Weights

_NEEDED = ("qlinear_prepack", "qlinear_pointwise", "qconv_prepack", "qconv_pointwise")


class OnednnKernel:
    """Float outputs for ops whose neighbours are float; `emit` is left to the engine's own ops."""

    name = "onednn_float"

    def __init__(self) -> None:
        self._engine = EngineKernel("onednn")

    def available(self) -> bool:
        space = torch.ops.onednn
        here = torch.backends.mkldnn.is_available()
        return here and all(hasattr(space, name) for name in _NEEDED)

    def linear(
        self,
        weights: Weights,
        inlet: Affine,
        outlet: Affine | None = None,
        relu: bool = False,
        emit: bool = False,
    ) -> Run:
        if emit:
            return self._engine.linear(weights, inlet, outlet, relu, emit)
        product = _product(weights, relu)
        return lambda x: product(*_codes(x, inlet))

    def linear_dynamic(self, weights: Weights, relu: bool = False, reduced: bool = False) -> Run:
        if self._engine.available():  # finds the range and rounds in one pass
            return self._engine.linear_dynamic(weights, relu, reduced)
        product, levels = _product(weights, relu), 127 if reduced else 255

        def run(x: torch.Tensor) -> torch.Tensor:
            inlet = measured(x, levels)
            return product(plain_integers(plain(x), inlet), inlet)

        return run

    def conv(
        self,
        weights: Weights,
        geometry: Geometry,
        inlet: Affine,
        outlet: Affine,
        relu: bool = False,
        emit: bool = False,
    ) -> Run:
        if emit:
            return self._engine.conv(weights, geometry, inlet, outlet, relu, emit)
        scale, zeros = _scales(weights, weights.values.shape[0])
        shape = [list(geometry.stride), list(geometry.padding), list(geometry.dilation)]
        # The layout asks only whether there is a zero point, not for its value or for the scale.
        offset = min(inlet.zero_point, 1)
        key = (self.name, geometry, offset)
        if key not in weights.packs:
            weights.packs[key] = torch.ops.onednn.qconv_prepack(
                weights.values, scale, 1.0, offset, *shape, geometry.groups
            )
        packed, bias, groups = weights.packs[key], weights.bias, geometry.groups
        fused = relu and geometry.dims < 3  # oneDNN has no relu behind a volume's convolution
        after = "relu" if fused else "none"
        op = torch.ops.onednn.qconv_pointwise

        def run(x: torch.Tensor) -> torch.Tensor:
            codes, given = _codes(x, inlet)
            y: torch.Tensor = op(
                codes, given.scale, given.zero_point, packed, scale, zeros, bias, *shape, groups,
                1.0, 0, torch.float32, after, [], "",
            )  # fmt: skip
            return torch.relu(y) if relu and not fused else y

        return run


def _product(weights: Weights, relu: bool) -> Callable[[torch.Tensor, Affine], torch.Tensor]:
    """The linear as a function of codes and how these are scaled."""
    key = (OnednnKernel.name, "linear")
    if key not in weights.packs:
        weights.packs[key] = torch.ops.onednn.qlinear_prepack(weights.values, None)
    packed, scale, zeros = weights.packs[key], *_scales(weights, weights.values.shape[0])
    bias, after = weights.bias, "relu" if relu else "none"
    op = torch.ops.onednn.qlinear_pointwise

    def run(codes: torch.Tensor, inlet: Affine) -> torch.Tensor:
        y: torch.Tensor = op(
            codes, inlet.scale, inlet.zero_point, packed, scale, zeros, bias,
            1.0, 0, torch.float32, after, [], "",
        )  # fmt: skip
        return y

    return run


def _scales(weights: Weights, channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One scale and zero point per output channel; a single one is repeated."""
    scale = weights.scale if weights.axis is not None else weights.scale.repeat(channels)
    return scale, torch.zeros(channels, dtype=torch.int64)


_quantized = Latest()


def _codes(x: torch.Tensor, inlet: Affine) -> tuple[torch.Tensor, Affine]:
    """The input as plain uint8, and how it is scaled."""
    if is_coded(x):
        return integers(x), affine_of(x)
    return _quantized.get(x, inlet, lambda: plain_integers(plain(x), inlet)), inlet
