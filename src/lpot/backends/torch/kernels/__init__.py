"""The executors behind low-precision ops: one interface, several ways to compute."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from lpot.backends.torch.kernels.engine import EngineKernel
from lpot.backends.torch.kernels.interface import Affine, Geometry, Kernel, Run
from lpot.backends.torch.kernels.onednn import OnednnKernel
from lpot.backends.torch.kernels.reference import ReferenceKernel

__all__ = ["KERNELS", "Affine", "Geometry", "Kernel", "Run", "candidates"]

KERNELS: Mapping[str, Kernel] = {
    "fbgemm": EngineKernel("fbgemm"),
    "onednn": EngineKernel("onednn"),
    "onednn_float": OnednnKernel(),
    "reference": ReferenceKernel(),
}

# Which executors to try for an op, the most wanted first. fbgemm and onednn_float give float
# outputs without rounding them to 8 bits; oneDNN has no transposed convolution here.
_WANTED: Mapping[str, tuple[str, ...]] = {
    "linear": ("fbgemm", "onednn_float", "onednn", "reference"),
    "conv": ("onednn_float", "fbgemm", "onednn", "reference"),
    "transposed": ("fbgemm", "reference"),
    "recurrent": ("fbgemm", "onednn"),
}


@cache
def candidates(family: str) -> tuple[str, ...]:
    """Names of the executors that this build of torch has for a family of ops."""
    return tuple(name for name in _WANTED[family] if KERNELS[name].available())
