"""INT8 convolutions give their channels last in memory. Does the model's code bear that?"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.run import CALL_ERRORS, call
from lpot.core.batch import Inputs


def viewed(prepared: Prepared, inputs: Inputs) -> frozenset[str]:
    """The convolutions of a model that ends in an error where they are laid out so: `x.view(n, -1)`
    asks for memory as FP32 has it."""
    convs = [name for name, layer in prepared.layers.items() if layer.spec.family == "conv"]
    if not convs:
        return frozenset()
    root = prepared.fresh()
    for name in convs:
        root.get_submodule(name).register_forward_hook(_turn)
    try:
        call(root, inputs)
    except CALL_ERRORS:
        return frozenset(convs)
    return frozenset()


def _turn(module: nn.Module, args: Any, output: Any) -> Any:
    if not isinstance(output, torch.Tensor) or output.dim() < 3:
        return output
    return output.movedim(1, -1).contiguous().movedim(-1, 1)


def plain(value: Any) -> Any:
    """A tensor, or all in a structure, as FP32 would lay them out."""
    if isinstance(value, torch.Tensor):
        return value.contiguous()
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return list(map(plain, value))
    if type(value) is dict:
        return {key: plain(item) for key, item in value.items()}
    return value
