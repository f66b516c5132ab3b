"""One call of a module: inputs in any form, outputs as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.data import arguments, describe, tensors
from lpot.core.batch import Inputs
from lpot.core.errors import DataError

# What torch raises when a batch does not fit a model.
CALL_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError)


def call(module: nn.Module, inputs: Inputs) -> Any:
    """The module's own output, in eval mode and without gradients."""
    if module.training:
        module.eval()
    positional, named = arguments(module, inputs)
    with torch.no_grad():
        return module(*positional, **named)


def run(module: nn.Module, inputs: Inputs) -> list[np.ndarray]:
    try:
        output = call(module, inputs)
    except CALL_ERRORS as error:
        raise DataError(
            f"{type(module).__name__} could not run on a batch ({describe(inputs)}): "
            f"{error}{guess(module, inputs)}"
        ) from error
    return [to_numpy(value) for value in tensors(output)]


def guess(module: nn.Module, inputs: Inputs) -> str:
    """Would it have run as a batch of one?"""
    if not isinstance(inputs, tuple) or not all(isinstance(x, torch.Tensor) for x in inputs):
        return ""
    try:
        call(module, tuple(x.unsqueeze(0) for x in inputs))
    except CALL_ERRORS:
        return ""
    return " (is the batch dimension missing?)"


def to_numpy(value: torch.Tensor) -> np.ndarray:
    value = value.detach()
    if value.layout != torch.strided:
        value = value.to_dense()
    if value.dtype in (torch.bfloat16, torch.float16):
        value = value.float()
    array: np.ndarray = value.numpy()
    return array
