"""Cross-layer equalization of channels that were torn apart: FP32 results stay bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.kinds import Layer
from lpot.backends.torch.streams import reading
from lpot.backends.torch.weights import float_weights
from lpot.core.ptq.equalize import Layers, equalize
from lpot.core.ptq.streams import Stream

Factors = Mapping[str, np.ndarray]  # first maker of a stream → factor of each channel
Norms = Mapping[str, str | None]  # op → the batch norm behind it


def find_factors(
    streams: Sequence[Stream],
    norms: Norms,
    layers: Mapping[str, Layer],
    modules: Mapping[str, nn.Module],
) -> dict[str, np.ndarray]:
    """The factors of every stream that gains from them."""
    found = equalize(streams, _Layers(norms, layers, modules))
    return {streams[number].makers[0][0]: factors for number, factors in found.items()}


class _Layers(Layers):
    """Weights with their norms folded in, scaled as the search for factors goes on."""

    def __init__(
        self, norms: Norms, layers: Mapping[str, Layer], modules: Mapping[str, nn.Module]
    ) -> None:
        self._norms, self._layers, self._modules = norms, layers, modules
        self._parts: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def _of(self, op: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        if op not in self._parts:
            norm = self._norms.get(op)
            folded = self._modules[norm] if norm is not None else None
            self._parts[op] = float_weights(self._layers[op], folded)
        return self._parts[op]

    def made(self, op: str) -> np.ndarray:
        weight, bias = self._of(op)
        peaks = weight.abs().flatten(1).amax(1)
        return _array(peaks if bias is None else torch.maximum(peaks, bias.abs()))

    def read(self, op: str) -> np.ndarray:
        return _array(reading(self._layers[op].module, self._of(op)[0]).abs().amax(1))

    def divide_made(self, op: str, factors: np.ndarray) -> None:
        weight, bias = self._of(op)
        part = 1.0 / torch.from_numpy(factors.astype(np.float32))
        scaled = weight * _rows(part, weight.dim())
        self._parts[op] = (scaled, None if bias is None else bias * part)

    def multiply_read(self, op: str, factors: np.ndarray) -> None:
        weight, bias = self._of(op)
        part = torch.from_numpy(factors.astype(np.float32))
        self._parts[op] = (weight * _columns(part, self._layers[op].module), bias)


def _array(values: torch.Tensor) -> np.ndarray:
    array: np.ndarray = values.detach().double().numpy()
    return array


def apply_factors(
    modules: Mapping[str, nn.Module], streams: Sequence[Stream], norms: Norms, factors: Factors
) -> dict[str, torch.Tensor]:
    """Give the modules (a copy's) scaled parameters; returns those by name."""
    changed: dict[str, torch.Tensor] = {}

    def scale(name: str, parameter: str, factor: torch.Tensor) -> None:
        module = modules[name]
        old = getattr(module, parameter)
        if old is None:
            return
        new = nn.Parameter((old.detach() * factor), requires_grad=old.requires_grad)
        setattr(module, parameter, new)
        changed[f"{name}.{parameter}" if name else parameter] = new

    for stream in streams:
        if stream.makers[0][0] not in factors:
            continue
        factor = torch.from_numpy(np.asarray(factors[stream.makers[0][0]], np.float32))
        for op, start in stream.makers:
            maker: Any = modules[op]
            part = 1.0 / factor[start : start + len(maker.weight)]
            norm = norms.get(op)
            rows = part if norm is not None else _rows(part, maker.weight.dim())
            scale(op if norm is None else norm, "weight", rows)
            scale(op if norm is None else norm, "bias", part)
        for op, start in stream.readers:
            scale(op, "weight", _columns(factor[start:], modules[op]))
    return changed


def _rows(factor: torch.Tensor, dims: int) -> torch.Tensor:
    return factor.reshape(-1, *[1] * (dims - 1))


def _columns(factor: torch.Tensor, module: Any) -> torch.Tensor:
    """Factors from the first channel that the module reads on, laid out as its weight."""
    outputs, inputs = module.weight.shape[:2]
    groups = getattr(module, "groups", 1)
    spread = factor[: groups * inputs].reshape(groups, 1, inputs)
    spread = spread.repeat(1, outputs // groups, 1)
    return spread.reshape(outputs, inputs, *[1] * (module.weight.dim() - 2))
