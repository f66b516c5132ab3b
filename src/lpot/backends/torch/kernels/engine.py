"""torch.ops.quantized with weights packed for one engine (fbgemm or oneDNN)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lpot.backends.torch.kernels.codes import encode, has_codes, weight_tensor
from lpot.backends.torch.kernels.interface import Affine, Geometry, Run, plain
from lpot.backends.torch.weights import Weights

_ops = torch.ops.quantized
_engine_lock = threading.Lock()


@contextmanager
def using_engine(name: str) -> Iterator[None]:
    """The engine is a process-wide setting that packing reads: it is set as briefly as possible."""
    with _engine_lock:
        before = torch.backends.quantized.engine
        torch.backends.quantized.engine = name
        try:
            yield
        finally:
            torch.backends.quantized.engine = before


@functools.cache
def supported_engines() -> tuple[str, ...]:
    return tuple(torch.backends.quantized.supported_engines) if has_codes() else ()


class FusedSum:
    """conv + another summand (+ relu) in one call of oneDNN; the result overwrites the summand."""

    def __init__(
        self, weights: Weights, geometry: Geometry, inlet: Affine, outlet: Affine, relu: bool
    ) -> None:
        self.packed = EngineKernel("onednn").pack_conv(weights, geometry)
        self.inlet = inlet
        self.outlet = outlet
        self.op = _ops.conv2d_add_relu if relu else _ops.conv2d_add
        # This op alone asks for the process-wide engine when it runs, not when it is packed. Going
        # back to a value read now leaves the setting right whatever other threads do meanwhile.
        self._before = torch.backends.quantized.engine

    def __deepcopy__(self, memo: dict[int, Any]) -> FusedSum:
        """Copies share it: copying packed weights would pack them anew, for another engine."""
        return self

    def __call__(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        x = x if x.is_quantized else encode(plain(x), self.inlet)
        torch.backends.quantized.engine = "onednn"
        try:
            y: torch.Tensor = self.op(
                x, other, self.packed, self.outlet.scale, self.outlet.zero_point
            )
        finally:
            torch.backends.quantized.engine = self._before
        return y


class EngineKernel:
    """Ops whose packed weights know the engine they were packed for."""

    def __init__(self, engine: str) -> None:
        self.name = engine
        # Only fbgemm has the linear that takes and gives float tensors in one call.
        self._float_linear = engine == "fbgemm"

    def available(self) -> bool:
        return self.name in supported_engines()

    def linear(
        self,
        weights: Weights,
        inlet: Affine,
        outlet: Affine | None = None,
        relu: bool = False,
        emit: bool = False,
    ) -> Run:
        packed = self.pack_linear(weights, "static")
        if self._float_linear and not emit:
            return _float_linear(packed, inlet, relu)
        if outlet is None:
            raise ValueError(
                f"{self.name} needs the output scale and zero point of a static linear"
            )
        op = _ops.linear_relu if relu else _ops.linear
        return _between(op, packed, inlet, outlet, emit)

    def linear_dynamic(self, weights: Weights, relu: bool = False, reduced: bool = False) -> Run:
        packed = self.pack_linear(weights, "dynamic")
        op = _ops.linear_relu_dynamic if relu else _ops.linear_dynamic

        def run(x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = op(plain(x), packed, reduced)
            return y

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
        if _is_tiled(weights, geometry):
            return self._tiled(weights, geometry, inlet, outlet, relu, emit)
        packed = self.pack_conv(weights, geometry)
        name = f"conv_transpose{geometry.dims}d" if geometry.transposed else f"conv{geometry.dims}d"
        fused = relu and not geometry.transposed
        op = getattr(_ops, f"{name}_relu" if fused else name)
        run = _between(op, packed, inlet, outlet, emit)
        if relu and not fused:
            return lambda x: torch.relu(run(x))
        return run

    def _tiled(
        self,
        weights: Weights,
        geometry: Geometry,
        inlet: Affine,
        outlet: Affine,
        relu: bool,
        emit: bool,
    ) -> Run:
        """A transposed convolution whose patches don't overlap, the usual one of a U-Net: each
        pixel makes a tile of its own, so it is a 1x1 convolution with the tiles laid out after.
        (fbgemm's own is wrong for 2x2 without padding.)"""
        key = ("tiles", geometry)
        if key not in weights.packs:
            weights.packs[key] = _tiles(weights)
        point = Geometry(2, (1, 1), (0, 0), (1, 1))
        run = self.conv(weights.packs[key], point, inlet, outlet, relu, emit)
        size = geometry.stride[0]
        return lambda x: _laid_out(run(x), size)

    def pack_linear(self, weights: Weights, use: str) -> Any:
        """oneDNN fails when one pack serves static and dynamic calls: each use has its own."""
        key = (self.name, use if self.name == "onednn" else "")
        if key not in weights.packs:
            with using_engine(self.name):
                weights.packs[key] = _ops.linear_prepack(_tensor(weights), weights.bias)
        return weights.packs[key]

    def pack_conv(self, weights: Weights, geometry: Geometry) -> Any:
        key = (self.name, geometry)
        if key not in weights.packs:
            with using_engine(self.name):
                weights.packs[key] = _pack_conv(weights, geometry)
        return weights.packs[key]


def _float_linear(packed: Any, inlet: Affine, relu: bool) -> Run:
    op = (
        _ops.linear_with_input_q_dq_qweight_dq_relu_output_fp32
        if relu
        else _ops.linear_with_input_q_dq_qweight_dq_output_fp32
    )
    scale, zero_point = inlet.scale, inlet.zero_point

    def run(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = op(
            x.dequantize() if x.is_quantized else plain(x), scale, zero_point, packed
        )
        return y

    return run


def _between(
    op: Callable[..., torch.Tensor], packed: Any, inlet: Affine, outlet: Affine, emit: bool
) -> Run:
    """Quantize what comes in unless it is already, call, give floats unless told to emit."""
    out_scale, out_zero = outlet.scale, outlet.zero_point

    def run(x: torch.Tensor) -> torch.Tensor:
        x = x if x.is_quantized else encode(plain(x), inlet)
        y = op(x, packed, out_scale, out_zero)
        return y if emit else y.dequantize()

    return run


def _is_tiled(weights: Weights, geometry: Geometry) -> bool:
    size = geometry.stride[0]
    return (
        geometry.transposed
        and geometry.dims == 2
        and geometry.groups == 1
        and weights.axis is None
        and tuple(weights.values.shape[2:]) == geometry.stride == (size, size)
        and not any((*geometry.padding, *geometry.output_padding))
        and geometry.dilation == (1, 1)
    )


def _tiles(weights: Weights) -> Weights:
    """One output channel for each place in a tile: all channels of a place, then of the next."""
    places = weights.values.shape[2] * weights.values.shape[3]
    values = weights.values.permute(2, 3, 1, 0).reshape(-1, weights.values.shape[0], 1, 1)
    bias = None if weights.bias is None else weights.bias.repeat(places)
    return Weights(values.contiguous(), weights.scale, None, bias)


def _laid_out(x: torch.Tensor, size: int) -> torch.Tensor:
    """The tiles in their places. As pixel_shuffle, but channels stay last in memory, as the
    kernels have them: pixel_shuffle takes thirty times as long and slows down what reads it."""
    count, _, height, width = x.shape
    tiles = x.permute(0, 2, 3, 1).reshape(count, height, width, size, size, -1)
    rows = tiles.permute(0, 1, 3, 2, 4, 5).reshape(count, height * size, width * size, -1)
    return rows.permute(0, 3, 1, 2)


def _tensor(weights: Weights) -> torch.Tensor:
    return weight_tensor(weights.values, weights.scale, weights.axis)


def _pack_conv(weights: Weights, geometry: Geometry) -> Any:
    shape: list[Any] = [list(geometry.stride), list(geometry.padding)]
    if geometry.transposed:
        shape.append(list(geometry.output_padding))
    prefix = "conv_transpose" if geometry.transposed else "conv"
    prepack = getattr(_ops, f"{prefix}{geometry.dims}d_prepack")
    return prepack(_tensor(weights), weights.bias, *shape, list(geometry.dilation), geometry.groups)
