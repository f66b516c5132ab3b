"""One call of a module: inputs in any form, outputs as numpy arrays."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.data import arguments, describe, owned, tensors
from lpot.core.batch import Inputs
from lpot.core.errors import DataError

# What torch raises when a batch does not fit a model.
CALL_ERRORS = (
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)
_LONGEST = 300


def call(module: nn.Module, inputs: Inputs) -> Any:
    """The module's own output, in eval mode and without gradients; the inputs stay as they are."""
    if module.training:
        module.eval()
    with torch.no_grad():
        positional, named = owned(arguments(module, inputs))
        return module(*positional, **named)


def run(module: nn.Module, inputs: Inputs) -> list[np.ndarray]:
    try:
        output = call(module, inputs)
    except CALL_ERRORS as error:
        raise DataError(
            f"{type(module).__name__} could not run on a batch ({describe(inputs)}): "
            f"{reason(error)}{guess(module, inputs)}"
        ) from error
    return [to_numpy(value) for value in tensors(output)]


def reason(error: BaseException) -> str:
    """What went wrong, in one line: torch adds traces and advice; an assertion may say nothing."""
    text = " ".join(str(error).strip().split("\n\n", maxsplit=1)[0].split())
    if not text and error.__traceback__ is not None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} in line {frame.lineno} of {frame.filename}: {frame.line}"
    if "must have the same dtype" in text:
        text += "; everything is computed in float32 here: does forward cast to another type?"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


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
    if value.is_nested:
        value = value.to_padded_tensor(0.0)
    elif value.layout != torch.strided:
        value = value.to_dense()
    if value.dtype in (torch.bfloat16, torch.float16):
        value = value.float()
    array: np.ndarray = value.numpy()
    return array
