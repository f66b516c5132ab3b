"""What all low-precision modules share: the original's attributes and plain int8 buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.weights import Weights

# Values of the original that are copied: code may ask for `in_features` or `stride`.
_PLAIN = (int, float, str, bool, tuple, list, type(None))


class LowModule(nn.Module):  # type: ignore[misc]
    """Holds int8 weights under `<name>_int8`, `<name>_scale` and biases under their own names.

    `parts` maps a weight's name in the original ("weight", "weight_ih_l0") to its integers. Only
    these buffers go into a state dict; what kernels pack from them is derived.
    """

    kind: str  # class of the module replaced

    def __init__(self, original: nn.Module, parts: Mapping[str, Weights]) -> None:
        super().__init__()
        for name, value in original.__dict__.items():
            if not name.startswith("_") and isinstance(value, _PLAIN):
                self.__dict__[name] = value
        self.kind = type(original).__name__
        self.parts = dict(parts)
        self._real: dict[str, torch.Tensor] = {}
        for name, weights in self.parts.items():
            self.register_buffer(f"{name}_int8", weights.values)
            self.register_buffer(f"{name}_scale", weights.scale)
            self.register_buffer(bias_name(name), weights.bias)
            if weights.smooth is not None:
                self.register_buffer(f"{name}_smooth", weights.smooth)
        self.training = False

    def real(self, name: str) -> torch.Tensor:
        """A weight as floats: what the integers stand for, made when somebody asks."""
        if name not in self._real:
            self._real[name] = self.parts[name].real()
        return self._real[name]

    @property
    def weight(self) -> torch.Tensor:
        return self.real("weight")

    def facts(self) -> dict[str, Any]:
        """All that is needed besides the tensors to make this module again. JSON."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.facts().items())


def bias_name(weight: str) -> str:
    """weight → bias, weight_ih_l0 → bias_ih_l0, in_proj_weight → in_proj_bias."""
    return weight.replace("weight", "bias")


def as_inlet(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float32 or x.is_quantized else x.float()
