"""Even out torn channel ranges between two ops, by powers of two: FP32 results keep every bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional

from lpot.backends.torch.kinds import Site, is_hf_conv1d
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.passes.find_chains import Chain, is_relu
from lpot.backends.torch.weights import float_weights
from lpot.core.equalize import channel_scales

# What lets a positive factor through, channel by channel.
_THROUGH_MODULES = (
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Dropout,
    nn.Dropout2d,
    nn.Identity,
)
_THROUGH_FUNCTIONS = (
    functional.max_pool2d,
    functional.avg_pool2d,
    functional.adaptive_avg_pool2d,
)
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)

Factors = Mapping[str, np.ndarray]  # op that makes the channels → factor of each channel


@dataclass(frozen=True)
class Pair:
    """`reader` alone reads what `maker` makes; `norm` is the batch norm between them."""

    maker: str
    reader: str
    norm: str | None = None


def find_pairs(
    captured: Capture,
    chains: Mapping[str, Chain],
    sites: Mapping[str, Site],
    modules: Mapping[str, nn.Module],
) -> list[Pair]:
    firsts = {chain.first: name for name, chain in chains.items()}
    tied = Counter(id(tensor) for part in modules.values() for tensor in part._parameters.values())
    pairs = []
    for name, chain in chains.items():
        reader = None if chain.clip is not None else _reader(captured, chain.last, firsts, modules)
        if reader is None or not all(_is_layer(sites[op], tied) for op in (name, reader)):
            continue
        norm = modules[chain.norm] if chain.norm is not None else None
        if norm is not None and norm.weight is None:
            continue
        made = sites[name].module.weight.shape[0]
        if made == _reading(sites[reader].module, sites[reader].module.weight).shape[0]:
            pairs.append(Pair(name, reader, chain.norm))
    return pairs


def _reader(
    captured: Capture,
    node: fx.Node,
    firsts: Mapping[fx.Node, str],
    modules: Mapping[str, nn.Module],
) -> str | None:
    """The op that alone reads this value, with nothing but pooling and relus between."""
    while True:
        users = list(node.users)
        if len(users) != 1 or users[0].args[:1] != (node,):
            return None
        node = users[0]
        if node in firsts:
            return firsts[node]
        if not (is_relu(captured, node, modules) or _passes(captured, node, modules)):
            return None


def _passes(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(modules[captured.targets[str(node.target)]]) in _THROUGH_MODULES
    return node.op == "call_function" and node.target in _THROUGH_FUNCTIONS


def _is_layer(site: Site, tied: Mapping[int, int]) -> bool:
    """Weights of its own: a tied one can't be scaled for one op alone."""
    module = site.module
    if type(module) not in _LAYERS or is_hf_conv1d(module) or site.norm is not None:
        return False
    own = [tensor for tensor in module._parameters.values() if tensor is not None]
    return all(tied[id(tensor)] == 1 and bool(torch.isfinite(tensor).all()) for tensor in own)


def find_factors(
    pairs: Sequence[Pair], sites: Mapping[str, Site], modules: Mapping[str, nn.Module]
) -> dict[str, np.ndarray]:
    """The factors of every pair that gains from them."""
    found: dict[str, np.ndarray] = {}
    makes, reads = {}, {}
    for pair in pairs:
        norm = modules[pair.norm] if pair.norm is not None else None
        weight, bias = float_weights(sites[pair.maker], norm)
        made = weight.abs().flatten(1).amax(1)
        if bias is not None:
            made = torch.maximum(made, bias.abs())
        makes[pair] = made.double().numpy()
        reader = sites[pair.reader].module
        reads[pair] = _reading(reader, reader.weight.detach()).abs().amax(1).double().numpy()
    for pair in pairs:
        factors = channel_scales(makes[pair], reads[pair])
        if factors is not None:
            found[pair.maker] = factors
    return found


def _reading(module: Any, weight: torch.Tensor) -> torch.Tensor:
    """A weight as (channels it reads, everything else)."""
    groups = getattr(module, "groups", 1)
    outputs, inputs = weight.shape[:2]
    split = weight.reshape(groups, outputs // groups, inputs, -1)
    return split.transpose(1, 2).reshape(groups * inputs, -1)


def apply_factors(
    modules: Mapping[str, nn.Module], pairs: Sequence[Pair], factors: Factors
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

    for pair in pairs:
        if pair.maker not in factors:
            continue
        factor = torch.from_numpy(np.asarray(factors[pair.maker], np.float32))
        if pair.norm is not None:
            scale(pair.norm, "weight", 1.0 / factor)
            scale(pair.norm, "bias", 1.0 / factor)
        else:
            maker: Any = modules[pair.maker]
            scale(pair.maker, "weight", _rows(1.0 / factor, maker.weight.dim()))
            scale(pair.maker, "bias", 1.0 / factor)
        scale(pair.reader, "weight", _columns(factor, modules[pair.reader]))
    return changed


def _rows(factor: torch.Tensor, dims: int) -> torch.Tensor:
    return factor.reshape(-1, *[1] * (dims - 1))


def _columns(factor: torch.Tensor, module: Any) -> torch.Tensor:
    outputs, inputs = module.weight.shape[:2]
    groups = getattr(module, "groups", 1)
    spread = factor.reshape(groups, 1, inputs).repeat(1, outputs // groups, 1)
    return spread.reshape(outputs, inputs, *[1] * (module.weight.dim() - 2))
