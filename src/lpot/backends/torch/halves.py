"""Weights that are stored as float16: in memory they are float32 of the same values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.clone import Cloner
from lpot.core.numerics.rounding import halved
from lpot.core.recipe import OpKey, Recipe

WORD = "fp16"
BEYOND = "float16 can't hold its weights: they are too large, too small or too few"


def rounded(module: nn.Module, known: dict[int, nn.Parameter]) -> nn.Module | None:
    """A copy whose matrices have values of float16; None where there are none that can.

    `known` are those that were rounded before, by the id of the original: tied weights stay tied.
    """
    twin = Cloner(module)()
    changed = False
    for name, parameter in list(twin.named_parameters()):
        if id(parameter) not in known:
            values = halved(_array(parameter)) if parameter.dim() > 1 else None
            if values is None:
                continue
            wide = torch.from_numpy(values.astype(np.float32))
            known[id(parameter)] = nn.Parameter(wide, parameter.requires_grad)
        owner, _, leaf = name.rpartition(".")
        setattr(twin.get_submodule(owner), leaf, known[id(parameter)])
        changed = True
    return twin if changed else None


def _array(parameter: nn.Parameter) -> np.ndarray:
    found: np.ndarray = parameter.detach().numpy()
    return found


def names_stored(
    native: nn.Module, recipe: Recipe | None, skipped: Mapping[OpKey, str]
) -> frozenset[str]:
    """The entries of the state dict that a file holds as float16."""
    ops = {} if recipe is None else recipe.ops
    asked = [
        key.name for key, config in ops.items() if config.precision == WORD and key not in skipped
    ]
    if not asked:
        return frozenset()
    modules = dict(native.named_modules())
    return frozenset(
        ".".join(filter(None, (name, inner)))
        for name in asked
        if name in modules
        for inner, parameter in modules[name].named_parameters()
        if parameter.dim() > 1 and parameter.dtype == torch.float32 and _is_exact(parameter)
    )


def _is_exact(parameter: torch.Tensor) -> bool:
    return bool(torch.equal(parameter.half().float(), parameter))
