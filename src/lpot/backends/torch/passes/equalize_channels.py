"""Even out torn channel ranges between layers, by powers of two: FP32 results keep every bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.kinds import Site
from lpot.backends.torch.passes.find_streams import reading
from lpot.backends.torch.weights import float_weights
from lpot.core.ptq.equalize import channel_scales
from lpot.core.ptq.streams import Stream

ROUNDS = 4  # a chain of layers settles after a few

Factors = Mapping[str, np.ndarray]  # first maker of a stream → factor of each channel
Norms = Mapping[str, str | None]  # op → the batch norm behind it


def find_factors(
    streams: Sequence[Stream],
    norms: Norms,
    sites: Mapping[str, Site],
    modules: Mapping[str, nn.Module],
) -> dict[str, np.ndarray]:
    """The factors of every stream that gains from them."""
    found = {stream.makers[0][0]: np.ones(stream.size) for stream in streams}
    layers = _Layers(norms, sites, modules)
    for _ in range(ROUNDS):
        moved = False
        for stream in streams:
            scales = layers.even(stream)
            if scales is not None:
                found[stream.makers[0][0]] *= scales
                moved = True
        if not moved:
            break
    return {name: factors for name, factors in found.items() if (factors != 1.0).any()}


class _Layers:
    """Weights with their norms folded in, scaled as the search for factors goes on."""

    def __init__(
        self, norms: Norms, sites: Mapping[str, Site], modules: Mapping[str, nn.Module]
    ) -> None:
        self._norms, self._sites, self._modules = norms, sites, modules
        self._parts: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def _of(self, op: str) -> tuple[torch.Tensor, torch.Tensor | None]:
        if op not in self._parts:
            norm = self._norms.get(op)
            folded = self._modules[norm] if norm is not None else None
            self._parts[op] = float_weights(self._sites[op], folded)
        return self._parts[op]

    def even(self, stream: Stream) -> np.ndarray | None:
        made, read = torch.zeros(stream.size), torch.zeros(stream.size)
        for op, start in stream.makers:
            weight, bias = self._of(op)
            peaks = weight.abs().flatten(1).amax(1)
            _raise(made, peaks if bias is None else torch.maximum(peaks, bias.abs()), start)
        for op, start in stream.readers:
            _raise(read, reading(self._sites[op].module, self._of(op)[0]).abs().amax(1), start)
        scales = channel_scales(made.double().numpy(), read.double().numpy())
        if scales is not None:
            self._scale(stream, torch.from_numpy(scales.astype(np.float32)))
        return scales

    def _scale(self, stream: Stream, scales: torch.Tensor) -> None:
        for op, start in stream.makers:
            weight, bias = self._of(op)
            part = 1.0 / scales[start : start + len(weight)]
            scaled = weight * _rows(part, weight.dim())
            self._parts[op] = (scaled, None if bias is None else bias * part)
        for op, start in stream.readers:
            weight, bias = self._of(op)
            part = _columns(scales[start:], self._sites[op].module)
            self._parts[op] = (weight * part, bias)


def _raise(largest: torch.Tensor, values: torch.Tensor, start: int) -> None:
    part = largest[start : start + len(values)]
    torch.maximum(part, values.detach().float(), out=part)


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
