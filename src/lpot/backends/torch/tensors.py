"""What each op gives in FP32 and in INT8, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.kernels.codes import decode
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.modules import LowConv, LowLinear, LowModule
from lpot.backends.torch.passes.find_chains import Chain, is_bare
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.run import call
from lpot.core.batch import Inputs
from lpot.core.recipe import OpKey
from lpot.core.results.tensors import Glimpse, OpTensors, Pair, stride_of

Seen = dict[str, Glimpse]  # thinned out at once: all outputs of a batch may be gigabytes


def tensors(
    prepared: Prepared, low: TorchModel, ops: Sequence[OpKey], inputs: Inputs
) -> dict[OpKey, Pair]:
    """First calls of each op. An op is looked at behind the batch norm that went into it."""
    chains = {
        op: chain
        for captured in prepared.captures
        if captured.name in low.captured
        for op, chain in prepared.chains_of(captured).items()
    }
    known = [key for key in ops if key.name in prepared.layers]
    folded = set(low.folded)
    places = {key.name: _end(chains.get(key.name), key.name, folded) for key in known}
    # A norm that does more than that (activates) still does it behind the op.
    ends = {
        op: op if op == place or is_bare(prepared.names[place]) else place
        for op, place in places.items()
    }
    exact = _watch(prepared.fresh(), places.values(), inputs)
    with _one_by_one(low):
        rounded = _watch(low.native, ends.values(), inputs)
    modules = dict(low.native.named_modules())
    found: dict[OpKey, Pair] = {}
    for key in known:
        module = modules.get(key.name)
        before, after = exact.get(places[key.name]), rounded.get(ends[key.name])
        if before is None or after is None:
            continue
        alike = _activation(module, chains.get(key.name))
        weights = _weights(prepared.names[key.name], module, places[key.name] != key.name)
        found[key] = (
            OpTensors(alike(before), weights[0]),
            OpTensors(alike(after), weights[1]),
        )
    return found


def _end(chain: Chain | None, name: str, folded: set[str]) -> str:
    norm = None if chain is None else chain.norm
    return norm if norm is not None and norm in folded else name


def _activation(module: nn.Module | None, chain: Chain | None) -> Callable[[Glimpse], Glimpse]:
    """What the INT8 op does beyond the FP32 one, done to both."""
    clip = None if chain is None else chain.clip
    relu = isinstance(module, LowLinear | LowConv) and module.settings.relu
    if clip is None and not relu:
        return lambda seen: seen
    return lambda seen: replace(seen, values=np.clip(seen.values, 0.0, clip))


@contextmanager
def _one_by_one(low: TorchModel) -> Iterator[None]:
    """Parts that hand int8 from op to op call their modules one by one meanwhile."""
    modules = dict(low.native.named_modules())
    programs = {
        name: modules[name].__dict__.pop("forward")
        for name in low.captured
        if name in modules and "forward" in modules[name].__dict__
    }
    try:
        yield
    finally:
        for name, program in programs.items():
            modules[name].forward = program


def _watch(root: nn.Module, names: Any, inputs: Inputs) -> Seen:
    seen: Seen = {}
    modules: Mapping[str, nn.Module] = dict(root.named_modules())

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            value = output[0] if isinstance(output, tuple) and output else output
            if name not in seen and isinstance(value, torch.Tensor):
                real = decode(value)
                if real.is_floating_point():
                    seen[name] = _glimpse(real.detach())

        return hook

    handles = [
        modules[name].register_forward_hook(keep(name))
        for name in dict.fromkeys(names)
        if name in modules
    ]
    try:
        call(root, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _glimpse(value: torch.Tensor) -> Glimpse:
    stride = stride_of(value.numel())
    values = value.reshape(-1)[::stride].float().cpu().numpy().copy()
    return Glimpse(values, tuple(value.shape), stride)


def _weights(
    module: nn.Module, low: nn.Module | None, is_folded: bool
) -> tuple[Glimpse, Glimpse] | tuple[None, None]:
    """Not where a batch norm went into the integers: the two are no longer the same weight."""
    weight = getattr(module, "weight", None)
    if is_folded or low is None or not isinstance(weight, torch.Tensor):
        return None, None
    if isinstance(low, LowModule) and "weight" not in low.parts:
        return None, None
    real = getattr(low, "weight", None)
    if not isinstance(real, torch.Tensor) or real.shape != weight.shape:
        return None, None
    return _glimpse(weight.detach()), _glimpse(real.detach())
