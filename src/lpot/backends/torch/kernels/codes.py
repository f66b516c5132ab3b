"""Values as uint8 codes on their way from op to op, in torch's quantized tensors.

torch deprecates those tensors and `torch.ops.quantized`. Every name of that kind stands in the
files of this room, so that one question, `has_codes`, decides: where they are gone, values between
ops are floats, and the executors that remain (torch.ops.onednn on plain integers, and our
reference in plain torch) serve all ops.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from lpot.backends.torch.kernels.affine import Affine

# How a missing function of torch shows itself.
ABSENT = (AttributeError, NotImplementedError, RuntimeError)


@functools.cache
def has_codes() -> bool:
    """Does this torch have quantized tensors and their ops? Asking silences its warning, which
    comes once per process: users can't help that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            coded = torch.quantize_per_tensor(
                torch.zeros(1, dtype=torch.float32), 1.0, 0, torch.quint8
            )
            torch._make_per_tensor_quantized_tensor(torch.zeros(1, dtype=torch.int8), 1.0, 0)
            torch._empty_affine_quantized([1], scale=1.0, zero_point=0, dtype=torch.quint8)
            torch.ops.quantized.add(coded, coded, 1.0, 0)
        except ABSENT:
            return False
    return True


def is_coded(x: torch.Tensor) -> bool:
    return has_codes() and x.is_quantized


def encode(x: torch.Tensor, affine: Affine) -> torch.Tensor:
    return torch.quantize_per_tensor(x, affine.scale, affine.zero_point, torch.quint8)


def decode(x: torch.Tensor) -> torch.Tensor:
    """As floats, whatever it was."""
    return x.dequantize() if is_coded(x) else x


def affine_of(x: torch.Tensor) -> Affine:
    return Affine(x.q_scale(), x.q_zero_point())


def integers(x: torch.Tensor) -> torch.Tensor:
    """The codes where they lie: int_repr copies them one by one, which takes longer than
    quantizing did."""
    codes = torch.empty(0, dtype=torch.uint8)
    return codes.set_(x.untyped_storage(), x.storage_offset(), x.size(), x.stride())


def plain_integers(x: torch.Tensor, affine: Affine) -> torch.Tensor:
    """Codes of a float tensor, as uint8; by torch's quantizer where it has one, which is faster."""
    if has_codes():
        return integers(encode(x, affine))
    return rounded(x, affine).to(torch.uint8)


def rounded(x: torch.Tensor, affine: Affine) -> torch.Tensor:
    """Codes of a float tensor, as floats."""
    # 1/scale in float32, as the fast kernels have it: otherwise ties fall to the other side.
    inverse = torch.tensor(1.0, dtype=torch.float32) / torch.tensor(
        affine.scale, dtype=torch.float32
    )
    return torch.round(x.detach().float() * inverse).add_(affine.zero_point).clamp_(0, 255)


def add(left: torch.Tensor, right: torch.Tensor, outlet: Affine, relu: bool) -> torch.Tensor:
    op = torch.ops.quantized.add_relu if relu else torch.ops.quantized.add
    total: torch.Tensor = op(left, right, outlet.scale, outlet.zero_point)
    return total


def join(values: Sequence[torch.Tensor], dim: int, outlet: Affine) -> torch.Tensor:
    whole: torch.Tensor = torch.ops.quantized.cat(values, dim, outlet.scale, outlet.zero_point)
    return whole


def pad(x: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
    """Zeros around a value, told as functional.pad is told. Of codes that function fills and copies
    one by one, which takes four times as long."""
    if not is_coded(x) or min(widths, default=0) < 0:
        return functional.pad(x, list(widths))
    # From the last axis on, two widths each.
    around = [(0, 0)] * (x.dim() - len(widths) // 2)
    around += list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    shape = [size + sum(ends) for size, ends in zip(x.shape, around, strict=True)]
    last = x.dim() == 4 and x.stride(1) == 1
    affine = affine_of(x)
    made = torch._empty_affine_quantized(
        shape,
        scale=affine.scale,
        zero_point=affine.zero_point,
        dtype=torch.quint8,
        memory_format=torch.channels_last if last else torch.contiguous_format,
    )
    codes = integers(made).fill_(affine.zero_point)
    for axis, (start, _) in enumerate(around):
        codes = codes.narrow(axis, start, x.shape[axis])
    codes.copy_(integers(x))
    return made


def weight_tensor(values: torch.Tensor, scale: torch.Tensor, axis: int | None) -> torch.Tensor:
    """What the packing ops of torch.ops.quantized want."""
    if axis is None:
        return torch._make_per_tensor_quantized_tensor(values, float(scale[0]), 0)
    zeros = torch.zeros(len(scale), dtype=torch.long)
    return torch._make_per_channel_quantized_tensor(values, scale.double(), zeros, axis)


def weight_parts(weight: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor] | None:
    """Integers, scales and zero points of a qint8 weight (checkpoints of lpot 1.x); None of any
    other tensor."""
    if not is_coded(weight) or weight.dtype != torch.qint8:
        return None
    if weight.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale, zeros = (
            torch.tensor([weight.q_scale()], dtype=torch.float32),
            torch.tensor(weight.q_zero_point()),
        )
    else:
        scale, zeros = weight.q_per_channel_scales(), weight.q_per_channel_zero_points()
    return weight.int_repr(), scale, zeros
