"""Calls of an op that no INT8 kernel can serve; it stays FP32 then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def is_compiled() -> bool:
    """Is torch reading the code (torch.cond reads its branches)? Then nothing may be noted."""
    return bool(torch.compiler.is_compiling())


def is_transformed() -> bool:
    """Under torch.vmap or torch.func.grad tensors have no values that could be read or packed."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and bool(value.is_nested)


class Owners:
    """Knows the parameters that ops had at first: torch.func.functional_call puts others there."""

    def __init__(self, ops: Mapping[str, nn.Module]) -> None:
        self._own = {name: dict(module._parameters) for name, module in ops.items()}

    def have_changed(self, name: str, module: nn.Module) -> bool:
        own = self._own[name]
        return any(own.get(key) is not value for key, value in module._parameters.items())
