"""Make torch's transformer encoder call its linears as modules, not one op on raw weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

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
        else:
            module.use_nested_tensor = False
