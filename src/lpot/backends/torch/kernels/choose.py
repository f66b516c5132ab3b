"""Which executor is the fastest for an op at a shape: a short race, once per shape and process."""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.kernels import KERNELS, Affine, Geometry, Kernel, Run, candidates
from lpot.backends.torch.kinds import Site
from lpot.backends.torch.weights import Weights

logger = logging.getLogger(__name__)

# The one wanted most stays unless another is clearly faster: noise must not decide.
ADVANTAGE = 0.85
ROUNDS = 5
_INLET, _OUTLET = Affine(0.05, 128), Affine(0.1, 128)


def choose(site: Site, shape: tuple[int, ...], inside: bool = False) -> str:
    """The executor for a static op whose input has this shape.

    `inside` a captured part values mostly come and go as uint8; elsewhere as floats.
    """
    module: Any = site.module
    if site.spec.family == "linear":
        # oneDNN's rounds once for all that read a tensor, which a race of one op can't see.
        names = [name for name in ("onednn_float", "fbgemm") if name in candidates("linear")]
        weight = tuple(module.weight.shape)
        if weight[-1] != shape[-1]:  # GPT-2's Conv1D
            weight = weight[::-1]
        return _fastest(tuple(names), None, weight, shape, False)
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        return candidates("transposed")[0]
    names = [name for name in candidates("conv") if name != "reference"]
    geometry = _geometry(module, shape)
    return _fastest(tuple(names[:2]), geometry, tuple(module.weight.shape), shape, inside)


def _geometry(module: Any, shape: tuple[int, ...]) -> Geometry:
    dims = len(module.kernel_size)
    padding = (0,) * dims if isinstance(module.padding, str) else tuple(module.padding)
    return Geometry(dims, tuple(module.stride), padding, tuple(module.dilation), module.groups)


@cache
def _fastest(
    names: tuple[str, ...],
    geometry: Geometry | None,
    weight: tuple[int, ...],
    shape: tuple[int, ...],
    inside: bool,
) -> str:
    if len(names) < 2 or 0 in shape:
        return names[0] if names else "reference"
    values = torch.ones(weight, dtype=torch.int8)
    weights = Weights(values, torch.full((weight[0],), 0.01), 0, torch.zeros(weight[0]))
    x = torch.rand(shape)
    if geometry is not None and x.dim() == geometry.dims + 1:
        x = x.unsqueeze(0)
    if inside:
        x = torch.quantize_per_tensor(x, _INLET.scale, _INLET.zero_point, torch.quint8)
    runs = {name: _runner(KERNELS[name], weights, geometry, inside) for name in names}
    best = {name: float("inf") for name in names}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            run(x)  # threads and caches belong to this one now
            best[name] = min(best[name], _seconds(run, x))
    wanted, fastest = names[0], min(best, key=lambda name: best[name])
    chosen = fastest if best[fastest] < ADVANTAGE * best[wanted] else wanted
    told = {name: f"{1000 * seconds:.3f} ms" for name, seconds in best.items()}
    logger.debug("%s for weight %s and input %s (%s)", chosen, weight, shape, told)
    return chosen


def _runner(kernel: Kernel, weights: Weights, geometry: Geometry | None, emit: bool) -> Run:
    if geometry is None:
        return kernel.linear(weights, _INLET, None)
    return kernel.conv(weights, geometry, _INLET, _OUTLET, emit=emit)


def _seconds(run: Run, x: torch.Tensor) -> float:
    # A new object each time: what was quantized last must not be found again.
    x = x.clone()
    began = time.perf_counter()
    run(x)
    return time.perf_counter() - began
