"""What each op saves in low precision, measured alone at the shapes of the calibration data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.build import build
from lpot.backends.torch.kernels.codes import encode, has_codes
from lpot.backends.torch.modules import LowConv, LowModule
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.ranges import Observed
from lpot.core.backend import Observations
from lpot.core.progress import tracked
from lpot.core.recipe import OpKey, Recipe

ROUNDS = 7


def gains(prepared: Prepared, recipe: Recipe, observations: Observations) -> dict[OpKey, float]:
    """Seconds saved a call; negative where low precision is slower. Equal ops are timed once."""
    ranges = Observed(observations)
    known: dict[tuple[Any, ...], float] = {}
    found: dict[OpKey, float] = {}
    for key in tracked(recipe.low_ops):
        shape = ranges.shapes.get(key.name)
        if shape is None or 0 in shape:
            continue
        inside = prepared.home.get(key.name) in ranges.trusted
        original = prepared.names[key.name]
        sort = (repr(original), shape, recipe.ops[key], inside)
        if sort not in known:
            trial = build(prepared, Recipe({key: recipe.ops[key]}, recipe.samples), ranges)
            low = trial.module.get_submodule(key.name)
            if not isinstance(low, LowModule):
                continue
            known[sort] = _saved(original, low, shape, inside)
        found[key] = known[sort]
    return found


def _saved(original: nn.Module, low: LowModule, shape: tuple[int, ...], inside: bool) -> float:
    x = torch.rand(shape)
    run: Callable[[torch.Tensor], Any] = low
    given = x
    between = inside and has_codes() and isinstance(low, LowConv)
    if between and low.settings.inlet and low.settings.outlet:
        # Between int8 neighbours values come and go as uint8.
        inlet = low.settings.inlet
        run = low.runner(low.settings.outlet)
        given = encode(x, inlet)
    slow = quick = float("inf")
    with torch.no_grad():
        for _ in range(ROUNDS):
            slow = min(slow, _seconds(original, x))
            quick = min(quick, _seconds(run, given))
    return slow - quick


def _seconds(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> float:
    run(x)  # threads and caches belong to this one now
    x = x.clone()
    began = time.perf_counter()
    run(x)
    return time.perf_counter() - began
