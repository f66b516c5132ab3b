"""Which executor serves an op: of those that agree with the reference, the fastest in a short race.

Both are found out once per shape and process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.abilities import saturates
from lpot.backends.torch.kernels import KERNELS, Affine, Run
from lpot.backends.torch.kernels.agree import Call, agrees, draw, noise, runner
from lpot.backends.torch.kernels.codes import encode, has_codes
from lpot.backends.torch.kernels.geometry import geometry_of
from lpot.backends.torch.kinds import Layer

logger = logging.getLogger(__name__)

# The one wanted most stays unless another is clearly faster: noise must not decide.
ADVANTAGE = 0.85
ROUNDS = 5
HEATS = 3  # that another must win, one after the other
DYNAMIC = ("fbgemm", "onednn")
ROWS = 8  # of a linear's input where no batch was seen
_INLET, _OUTLET = Affine(0.05, 128), Affine(0.1, 128)


def choose(layer: Layer, shape: tuple[int, ...], inside: bool = False) -> str | None:
    """The executor for a static op whose input has this shape; None where none is right.

    `inside` a captured part values mostly come and go as uint8; elsewhere as floats.
    """
    module: Any = layer.module
    if layer.spec.family == "linear":
        return _fastest(_linears(), Call(_linear_weight(module, shape), shape))
    transposed = isinstance(module, nn.modules.conv._ConvTransposeNd)
    axis = None if transposed else 0  # no kernel has a scale per channel of those
    geometry, before = geometry_of(module)
    padded = _padded(shape, before or [])
    call = Call(tuple(module.weight.shape), padded, geometry, inside and has_codes(), axis=axis)
    return _fastest(("fbgemm",) if transposed else ("onednn_float", "fbgemm"), call)


def choose_dynamic(layer: Layer, shape: tuple[int, ...] | None = None) -> str | None:
    """The executor for products whose range is taken from each batch; None where none is right."""
    module: Any = layer.module
    if layer.spec.family == "attention":
        weight = tuple(module.in_proj_weight.shape)
    else:
        weight = _linear_weight(module, shape or (module.weight.shape[1 - layer.spec.axis],))
    if shape is not None:
        return _fastest(DYNAMIC, Call(weight, shape, dynamic=True))
    call = Call(weight, (ROWS, weight[-1]), dynamic=True)
    return next((name for name in _here(DYNAMIC) if agrees(name, call)), None)


def _here(names: tuple[str, ...]) -> list[str]:
    """Those of the executors that this torch has, else one that needs no quantized tensors."""
    found = [name for name in names if KERNELS[name].available()]
    linear = names is DYNAMIC and KERNELS["onednn_float"].available()
    return found or ["onednn_float" if linear else "reference"]


def _linears() -> tuple[str, ...]:
    """Which to prefer where they are about equally fast. With VNNI it is oneDNN, which rounds once
    for all that read a tensor: a race of one op can't see that. Elsewhere rounding is nothing
    against the products, and fbgemm's are ahead."""
    return ("fbgemm", "onednn_float") if saturates() else ("onednn_float", "fbgemm")


def _linear_weight(module: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Outputs first: GPT-2's Conv1D has it the other way round."""
    weight = tuple(module.weight.shape)
    return weight if weight[-1] == shape[-1] else weight[::-1]


def _padded(shape: tuple[int, ...], before: list[int]) -> tuple[int, ...]:
    """A shape after padding, which is given from the last dimension on, two numbers for each."""
    more = [sum(before[i : i + 2]) for i in range(0, len(before), 2)]
    whole = [*([0] * (len(shape) - len(more))), *reversed(more)]
    return tuple(size + extra for size, extra in zip(shape, whole, strict=True))


@cache
def _fastest(wanted: tuple[str, ...], call: Call) -> str | None:
    names = [name for name in _here(wanted) if agrees(name, call)]
    if len(names) < 2 or 0 in call.shape:
        return names[0] if names else None
    call = call.batched
    weights, x = draw(call), noise(call.shape)
    if call.inside:
        x = encode(x, _INLET)
    runs = {name: runner(KERNELS[name], call, weights, _INLET, _OUTLET) for name in names}
    chosen = names[0]
    for _ in range(HEATS):  # on a busy machine one heat may be won by chance
        best = _race(runs, x)
        chosen = min(best, key=lambda name: best[name])
        told = {name: f"{1000 * seconds:.3f} ms" for name, seconds in best.items()}
        logger.debug("%s for %s (%s)", chosen, call, told)
        if best[chosen] >= ADVANTAGE * best[names[0]]:
            return names[0]
    return chosen


def _race(runs: Mapping[str, Run], x: torch.Tensor) -> dict[str, float]:
    best = {name: float("inf") for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            run(x)  # threads and caches belong to this one now
            best[name] = min(best[name], _seconds(run, x))
    return best


def _seconds(run: Run, x: torch.Tensor) -> float:
    # A new object each time: what was quantized last must not be found again.
    x = x.clone()
    began = time.perf_counter()
    run(x)
    return time.perf_counter() - began
