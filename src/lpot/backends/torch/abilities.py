"""What this torch and this CPU can do: the self-test for the range, and the choices per op."""

from __future__ import annotations

import functools
import logging

import torch

from lpot.backends.torch.kernels import KERNELS, Affine, Geometry, candidates
from lpot.backends.torch.kinds import OpSpec
from lpot.backends.torch.weights import Weights
from lpot.core.backend import Approach, Target
from lpot.core.cpu import TOLERANCE, this_cpu
from lpot.core.recipe import FP32, FP32_TENSOR, OpConfig, TensorConfig

logger = logging.getLogger(__name__)

ALGORITHMS = ("minmax", "kl", "percentile", "mse")
BF16 = OpConfig(TensorConfig("bf16"), None, "float")


def versions() -> dict[str, str]:
    """What the last bits of a result depend on."""
    return {
        "torch": torch.__version__,
        "torch capability": torch.backends.cpu.get_cpu_capability(),
    }


def activation_bits(target: Target = "this") -> int:
    """7 where 8-bit activations would overflow the CPU's 16-bit sums."""
    if target == "this":
        return 7 if saturates() else 8
    return 7 if target == "avx2" else 8


def has_bf16(target: Target = "this") -> bool:
    """Does the CPU multiply bf16 in hardware? Elsewhere it is emulated and slower than FP32."""
    if target != "this":
        return target == "amx"
    return this_cpu().has("amx_bf16", "avx512_bf16")


@functools.cache
def saturates() -> bool:
    """Is the worst case of any kernel wrong by more than rounding?"""
    return worst_error() > TOLERANCE


def worst_error() -> float:
    """Run the worst case through the real kernels: how far is it off, relative to the truth?"""
    largest = 0.0
    for family in ("linear", "conv"):
        for name in candidates(family)[:2]:
            worst = _worst_case(name, family)
            logger.info("%s %s: worst case of 8 bits is off by %.3f", name, family, worst)
            largest = max(largest, worst)
    return largest


def _worst_case(kernel: str, family: str) -> float:
    """The largest activation and weight everywhere: how far is the sum from the exact one?"""
    rows, columns = 64, 16
    if family == "linear":
        return worst_case(kernel, (columns, rows), (4, rows))
    point = Geometry(2, (1, 1), (0, 0), (1, 1))
    return worst_case(kernel, (columns, rows, 1, 1), (1, rows, 4, 4), point)


def worst_case(
    kernel: str,
    weight: tuple[int, ...],
    shape: tuple[int, ...],
    geometry: Geometry | None = None,
    axis: int | None = None,
) -> float:
    """How far an executor's sums of the largest 8-bit values are from the exact ones (a share)."""
    scale = torch.ones(1 if axis is None else weight[axis], dtype=torch.float32)
    weights = Weights(torch.full(weight, 127, dtype=torch.int8), scale, axis)
    x, inlet = torch.full(shape, 255.0, dtype=torch.float32), Affine(1.0, 0)

    def run(name: str, outlet: Affine) -> torch.Tensor:
        if geometry is None:
            return KERNELS[name].linear(weights, inlet, outlet)(x)
        return KERNELS[name].conv(weights, geometry, inlet, outlet)(x)

    truth = run("reference", Affine(255.0 * 127.0 * weights.values.numel() / 255.0, 0))
    outlet = Affine(float(truth.max()) / 255.0, 0)
    truth = run("reference", outlet)
    return float((run(kernel, outlet) - truth).abs().max() / truth.max())


def choices(spec: OpSpec, approach: Approach, target: Target) -> tuple[OpConfig, ...]:
    """Every config of an op, the most wanted first and FP32 last; or FP32 alone."""
    bits = activation_bits(target)
    granularities = ("per_channel", "per_tensor") if spec.per_channel else ("per_tensor",)
    if spec.family == "recurrent" and not candidates("recurrent"):
        return (FP32,)
    low: list[OpConfig] = []
    if spec.family == "embedding":
        low = [OpConfig(FP32_TENSOR, _weight(name), "dynamic") for name in granularities]
    else:
        if spec.dynamic and (approach != "static" or not spec.static):
            low += [
                OpConfig(_activation("minmax", "asym", bits), _weight(name), "dynamic")
                for name in granularities
            ]
        if spec.static and approach != "dynamic":
            low += [
                OpConfig(_activation(algorithm, scheme, bits), _weight(name), "static")
                for scheme in ("asym", "sym")
                for name in granularities
                for algorithm in ALGORITHMS
            ]
    wide = (BF16,) if has_bf16(target) and spec.family in ("linear", "conv") else ()
    return (*low, *wide, FP32) if low else (FP32,)


def _activation(algorithm: str, scheme: str, bits: int) -> TensorConfig:
    return TensorConfig("uint8", scheme, "per_tensor", algorithm, bits)


def _weight(granularity: str) -> TensorConfig:
    return TensorConfig("int8", "sym", granularity, "minmax", 8)
