"""What each op saves in low precision, measured alone at the shapes of the calibration data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.build import build
from lpot.backends.torch.kernels.agree import noise
from lpot.backends.torch.kernels.codes import encode, has_codes
from lpot.backends.torch.modules import LowConv
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.ranges import Observed
from lpot.core.backend import Observations
from lpot.core.ptq.gains import identity, kernel_times
from lpot.core.recipe import OpConfig, OpKey, Recipe

ROUNDS = 7


def gains(
    prepared: Prepared, recipe: Recipe, observations: Observations, versions: Mapping[str, str]
) -> dict[OpKey, float]:
    """Seconds saved a call; negative where low precision is slower."""
    ranges = Observed(observations)
    ops = {
        key: _Lone(prepared, key, recipe.ops[key], ranges, shape)
        for key in recipe.low_ops
        if (shape := ranges.shapes.get(key.name)) is not None and 0 not in shape
    }
    return {key: slow - quick for key, (slow, quick) in kernel_times(ops, versions).items()}


@dataclass(frozen=True, eq=False)
class _Lone:
    """One module by itself; between int8 neighbours values come and go as uint8."""

    prepared: Prepared
    key: OpKey
    config: OpConfig
    ranges: Observed
    shape: tuple[int, ...]

    parts = ("fp32", "low")

    @property
    def name(self) -> str:
        kind = type(self._original).__name__
        facts = repr(self._original), self.shape, self.config, self._inside
        return identity(kind, *facts, torch.get_num_threads())

    def seconds(self, part: str) -> float:
        x = noise(self.shape)
        run, given = (self._original, x) if part == "fp32" else self._low(x)
        with torch.no_grad():
            return min(_seconds(run, given) for _ in range(ROUNDS))

    def _low(self, x: torch.Tensor) -> tuple[Callable[[torch.Tensor], Any], torch.Tensor]:
        """What runs in low precision, and the input that it takes."""
        built = build(self.prepared, Recipe({self.key: self.config}), self.ranges)
        low = built.module.get_submodule(self.key.name)
        if not (self._inside and has_codes() and isinstance(low, LowConv)):
            return low, x
        settings = low.settings
        if not (settings.inlet and settings.outlet):
            return low, x
        return low.runner(settings.outlet), encode(x, settings.inlet)

    @property
    def _original(self) -> nn.Module:
        return self.prepared.names[self.key.name]

    @property
    def _inside(self) -> bool:
        return self.prepared.home.get(self.key.name) in self.ranges.trusted


def _seconds(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    run(x)  # threads and caches belong to this one now
    x = x.clone()
    began = time.perf_counter()
    run(x)
    return time.perf_counter() - began
