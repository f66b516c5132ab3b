"""What multiplies with a weight of few bits in PyTorch. Which one is best, only the clock tells.

Some of these are many times slower than FP32 on some CPUs: none is used unmeasured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from lpot.core.measure import latency
from lpot.core.weight_only.grid import Rounded

Tensors = dict[str, torch.Tensor]

FLOAT = "float"  # the weight written out again: always right, and as fast as FP32
TOKENS = 128  # of the prompt that a kernel is timed on
SECONDS = 0.05
TOLERANCE = 0.02  # of the outputs' amplitude
PROMPT = 0.3  # what a prompt counts against a token
GAIN = 1.05  # times FP32's speed, below which a kernel is not worth another layout
PACKED_GROUPS = (32, 64, 128, 256)
PACKED_ROWS = 16  # the packed layout wants a multiple of so many


@dataclass(frozen=True)
class Kernel:
    """`fits` says whether a weight can be packed for it; `run` multiplies [M, K] with it."""

    fits: Callable[[Rounded], bool]
    pack: Callable[[Rounded], Tensors]
    run: Callable[[torch.Tensor, Mapping[str, torch.Tensor]], torch.Tensor]


def _float_pack(rounded: Rounded) -> Tensors:
    return {"weight": torch.from_numpy(np.ascontiguousarray(rounded.values()))}


def _float_run(x: torch.Tensor, held: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return functional.linear(x, held["weight"])


def _int4_fits(rounded: Rounded) -> bool:
    rows, columns = rounded.codes.shape
    size = rounded.format.group_size
    divides = bool(size) and columns % size == 0 and rows % PACKED_ROWS == 0
    return rounded.format.bits == 4 and size in PACKED_GROUPS and divides


def _int4_pack(rounded: Rounded) -> Tensors:
    """Torch's grid is (code - 8) * scale + offset."""
    codes = torch.from_numpy(rounded.codes.astype(np.int32))
    scales = rounded.scales
    middle = rounded.format.middle
    zeros = np.full_like(scales, middle) if rounded.zeros is None else rounded.zeros
    offsets = (middle - zeros.astype(np.float32)) * scales
    both = np.stack([scales.T, offsets.T], axis=-1)
    return {
        "packed": torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1),
        "grid": torch.from_numpy(np.ascontiguousarray(both)),
        "group": torch.tensor(rounded.format.group_size),
    }


def _int4_run(x: torch.Tensor, held: Mapping[str, torch.Tensor]) -> torch.Tensor:
    found: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
        x, held["packed"], int(held["group"]), held["grid"]
    )
    return found


def _int8_fits(rounded: Rounded) -> bool:
    return rounded.format.bits == 8 and rounded.scales.shape[1] == 1 and rounded.zeros is None


def _int8_pack(rounded: Rounded) -> Tensors:
    codes = (rounded.codes.astype(np.int16) - rounded.format.middle).astype(np.int8)
    scales = np.ascontiguousarray(rounded.scales[:, 0])
    return {"codes": torch.from_numpy(codes), "scales": torch.from_numpy(scales)}


def _int8_run(x: torch.Tensor, held: Mapping[str, torch.Tensor]) -> torch.Tensor:
    found: torch.Tensor = torch.ops.aten._weight_int8pack_mm(x, held["codes"], held["scales"])
    return found


KERNELS: Mapping[str, Kernel] = {
    "int4": Kernel(_int4_fits, _int4_pack, _int4_run),
    "int8": Kernel(_int8_fits, _int8_pack, _int8_run),
    FLOAT: Kernel(lambda rounded: True, _float_pack, _float_run),
}


@dataclass(frozen=True)
class Shape:
    """What a kernel's time depends on."""

    rows: int
    columns: int
    bits: int
    group_size: int
    symmetric: bool

    @classmethod
    def of(cls, rounded: Rounded) -> Shape:
        rows, columns = rounded.codes.shape
        fmt = rounded.format
        return cls(rows, columns, fmt.bits, fmt.group_size, fmt.symmetric)


class Chooser:
    """The fastest kernel for each shape of weight, measured here once."""

    def __init__(self) -> None:
        self.chosen: dict[Shape, str] = {}
        self.refused: dict[Shape, dict[str, str]] = {}  # kernel → why

    def __call__(self, rounded: Rounded) -> str:
        shape = Shape.of(rounded)
        if shape not in self.chosen:
            self.chosen[shape] = self._fastest(shape, rounded)
        return self.chosen[shape]

    def _fastest(self, shape: Shape, rounded: Rounded) -> str:
        plain = KERNELS[FLOAT]
        reference = plain.pack(rounded)
        best, least = FLOAT, _mix(plain, reference) / GAIN
        for name, kernel in KERNELS.items():
            if name == FLOAT or not kernel.fits(rounded):
                continue
            why = self._try(kernel, rounded, reference)
            if isinstance(why, str):
                self.refused.setdefault(shape, {})[name] = why
            elif why < least:
                best, least = name, why
            else:
                slow = f"{GAIN * least / why:.2f} of FP32's speed"
                self.refused.setdefault(shape, {})[name] = slow
        return best

    def _try(self, kernel: Kernel, rounded: Rounded, reference: Tensors) -> float | str:
        """Its time, or why it can't be used."""
        x = _input(3, rounded.codes.shape[1])
        try:
            held = kernel.pack(rounded)
            found = kernel.run(x, held)
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            return f"no such kernel here ({str(error).splitlines()[0]})"
        truth = _float_run(x, reference)
        if not torch.allclose(found, truth, rtol=0, atol=TOLERANCE * float(truth.abs().max())):
            return "it gives wrong results here"
        return _mix(kernel, held)


def _input(tokens: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(tokens, columns, generator=generator)


def _columns(held: Mapping[str, Any]) -> int:
    if "packed" in held:
        return int(held["grid"].shape[0] * held["group"])
    return int((held["codes"] if "codes" in held else held["weight"]).shape[1])


def _mix(kernel: Kernel, held: Tensors) -> float:
    """Seconds a token, with the prompt's weighed in."""
    columns = _columns(held)
    one, many = _input(1, columns), _input(TOKENS, columns)
    token = latency(lambda: kernel.run(one, held), warmup=2, seconds=SECONDS).minimum
    prompt = latency(lambda: kernel.run(many, held), warmup=1, seconds=SECONDS).minimum
    return (1 - PROMPT) * token + PROMPT * prompt / TOKENS
