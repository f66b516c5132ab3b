"""torch.ops.onednn: uint8 tensors in, float sums out, so the output is never rounded to 8 bits."""

from __future__ import annotations

import torch

from lpot.backends.torch.kernels.engine import EngineKernel, supported_engines
from lpot.backends.torch.kernels.interface import Affine, Geometry, Run, plain
from lpot.backends.torch.kernels.latest import Latest
from lpot.backends.torch.weights import Weights

_NEEDED = ("qlinear_prepack", "qlinear_pointwise", "qconv_prepack", "qconv_pointwise")


class OnednnKernel:
    """Float outputs for ops whose neighbours are float; `emit` is left to the engine's own ops."""

    name = "onednn_float"

    def __init__(self) -> None:
        self._engine = EngineKernel("onednn")

    def available(self) -> bool:
        space = torch.ops.onednn
        return "onednn" in supported_engines() and all(hasattr(space, name) for name in _NEEDED)

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
        key = (self.name, "linear")
        if key not in weights.packs:
            weights.packs[key] = torch.ops.onednn.qlinear_prepack(weights.values, None)
        packed, scale, zeros = weights.packs[key], *_scales(weights, weights.values.shape[0])
        bias, after = weights.bias, "relu" if relu else "none"
        op = torch.ops.onednn.qlinear_pointwise

        def run(x: torch.Tensor) -> torch.Tensor:
            codes, in_scale, in_zero = _codes(x, inlet)
            y: torch.Tensor = op(
                codes, in_scale, in_zero, packed, scale, zeros, bias,
                1.0, 0, torch.float32, after, [], "",
            )  # fmt: skip
            return y

        return run

    def linear_dynamic(self, weights: Weights, relu: bool = False, reduced: bool = False) -> Run:
        return self._engine.linear_dynamic(weights, relu, reduced)

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
            codes, in_scale, in_zero = _codes(x, inlet)
            y: torch.Tensor = op(
                codes, in_scale, in_zero, packed, scale, zeros, bias, *shape, groups,
                1.0, 0, torch.float32, after, [], "",
            )  # fmt: skip
            return torch.relu(y) if relu and not fused else y

        return run


def _scales(weights: Weights, channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One scale and zero point per output channel; a single one is repeated."""
    scale = weights.scale if weights.axis is not None else weights.scale.repeat(channels)
    return scale, torch.zeros(channels, dtype=torch.int64)


_quantized = Latest()


def _codes(x: torch.Tensor, inlet: Affine) -> tuple[torch.Tensor, float, int]:
    """The input as plain uint8, with the scale and zero point it has."""
    if x.is_quantized:
        return _bare(x), x.q_scale(), x.q_zero_point()
    codes = _quantized.get(x, inlet, lambda: _quantize(x, inlet))
    return codes, inlet.scale, inlet.zero_point


def _quantize(x: torch.Tensor, inlet: Affine) -> torch.Tensor:
    return _bare(torch.quantize_per_tensor(plain(x), inlet.scale, inlet.zero_point, torch.quint8))


def _bare(x: torch.Tensor) -> torch.Tensor:
    """The integers where they lie: int_repr copies them one by one, which takes longer than
    quantizing did."""
    codes = torch.empty(0, dtype=torch.uint8)
    return codes.set_(x.untyped_storage(), x.storage_offset(), x.size(), x.stride())
