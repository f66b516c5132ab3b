"""A convolution module's shape parameters in the kernels' words."""

from __future__ import annotations

from typing import Any

from torch import nn

from lpot.backends.torch.kernels.interface import Geometry


def geometry_of(module: Any) -> tuple[Geometry, list[int] | None]:
    """The kernel's parameters, and the padding to do beforehand where the kernel can't."""
    transposed = isinstance(module, nn.modules.conv._ConvTransposeNd)
    dims = len(module.kernel_size)
    before: list[int] | None = None
    padding = module.padding
    if module.padding_mode != "zeros" or isinstance(padding, str):
        before = list(module._reversed_padding_repeated_twice)
        padding = (0,) * dims
        if module.padding_mode == "zeros" and before[::2] == before[1::2]:
            padding, before = tuple(before[::-2]), None
    geometry = Geometry(
        dims,
        tuple(module.stride),
        tuple(padding),
        tuple(module.dilation),
        module.groups,
        transposed,
        tuple(module.output_padding) if transposed else (),
    )
    return geometry, before if before is not None and any(before) else None
