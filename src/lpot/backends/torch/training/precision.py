"""The precision that a module is trained in."""

from __future__ import annotations

import copy

import torch
from torch import nn

from lpot.backends.torch.abilities import has_bf16
from lpot.backends.torch.run import CALL_ERRORS, call
from lpot.core.batch import Inputs


class TrainingPrecision:
    """bfloat16 where the CPU multiplies it, for about half the time; FP32 for modules with an op
    that does not take part in autocasting, such as nn.Bilinear."""

    def __init__(self, *modules: nn.Module) -> None:
        self._modules = modules
        self._halved: bool | None = None

    def __call__(self, inputs: Inputs) -> torch.autocast:
        """To be entered around the calls; the first batch decides."""
        if self._halved is None:
            self._halved = has_bf16() and all(_autocasts(one, inputs) for one in self._modules)
        return torch.autocast("cpu", torch.bfloat16, enabled=self._halved)


def _autocasts(module: nn.Module, inputs: Inputs) -> bool:
    twin = copy.deepcopy(module)  # no statistics of norms may move
    try:
        with torch.autocast("cpu", torch.bfloat16):
            call(twin, inputs)
    except CALL_ERRORS:
        return False
    return True
