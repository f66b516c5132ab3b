"""Make torch's transformer encoder call its linears as modules, not one op on raw weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import nn

_ENCODERS = (nn.TransformerEncoderLayer, nn.TransformerEncoder)


def find_encoders(modules: Mapping[str, nn.Module]) -> tuple[str, ...]:
    return tuple(name for name, module in modules.items() if isinstance(module, _ENCODERS))


def release_fastpath(root: nn.Module, encoders: Iterable[str], changed: Collection[str]) -> None:
    """Every encoder (layer) that holds one of the changed modules takes the path through modules.

    The fused op reads raw weights, so an op swapped inside it would be ignored in silence.
    """
    for name in encoders:
        module = root.get_submodule(name)
        prefix = f"{name}." if name else ""
        if not any(other.startswith(prefix) for other in changed):
            continue
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        elif module.use_nested_tensor:
            module.use_nested_tensor = False
            module.layers[-1].register_forward_hook(_zero_padding, with_kwargs=True)


def _zero_padding(layer: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """The fused op leaves out what is padded, and torch fills it with zeros at the end."""
    padding = kwargs.get("src_key_padding_mask")
    if padding is None or kwargs.get("src_mask") is not None or output.dim() != 3:
        return output
    if torch.compiler.is_compiling() or torch.is_autocast_enabled():
        return output
    if torch.is_grad_enabled() and any(value.requires_grad for value in layer.parameters()):
        return output
    kept = padding.logical_not()
    if not torch._nested_tensor_from_mask_left_aligned(output, kept):
        return output
    return output * kept.unsqueeze(-1)
