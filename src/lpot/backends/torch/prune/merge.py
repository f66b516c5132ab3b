"""Blocks of convolutions, each replaced by a single one, which is fitted to what the block gave.

Fu et al., "DepthShrinker: A New Compression Paradigm Towards Boosting Real-Hardware Efficiency of
Compact Neural Networks" (2022), merge layers once the activations between them are gone. Here the
single convolution is fitted, so that activations may stand between them and a shortcut around.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.kinds import find
from lpot.backends.torch.run import call
from lpot.core.batch import Inputs


@dataclass(frozen=True)
class Merger:
    """How one convolution stands for a block: under the name of one of the block's own, so that
    recipes, which go by names, speak of it. `first` is the one that read the block's input."""

    name: str
    first: str
    inputs: int
    outputs: int
    kernel: int
    relu: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Merger:
        """Raises KeyError, TypeError or ValueError for what is none."""
        inputs, outputs, kernel = (int(raw[key]) for key in ("inputs", "outputs", "kernel"))
        if min(inputs, outputs, kernel) < 1 or kernel % 2 == 0:
            raise ValueError(f"no convolution has the sizes {inputs}, {outputs}, {kernel}")
        relu = bool(raw["relu"])
        return cls(str(raw["name"]), str(raw["first"]), inputs, outputs, kernel, relu)


class Merged(nn.Module):  # type: ignore[misc]
    """Stands where a block was. Until it is fitted it hands on what comes in."""

    def __init__(self, merger: Merger) -> None:
        super().__init__()
        self._lpot_merger = merger  # no name that a block's own part could have
        size = merger.kernel
        conv = nn.Conv2d(
            merger.inputs, merger.outputs, size, padding=size // 2, dtype=torch.float32
        )
        nn.init.dirac_(conv.weight)
        nn.init.zeros_(conv.bias)
        *path, leaf = merger.name.split(".")
        holder: nn.Module = self
        for name in path:
            holder._modules[name] = inner = nn.Module()
            holder = inner
        holder._modules[leaf] = conv

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.get_submodule(self._lpot_merger.name)(hidden)
        return torch.relu(made) if self._lpot_merger.relu else made


def merger_of(part: nn.Module) -> Merger | None:
    return part._lpot_merger if isinstance(part, Merged) else None


def find_mergers(root: nn.Module, inputs: Inputs, blocks: Iterable[str]) -> dict[str, Merger]:
    """The blocks of pictures that one convolution could stand for, and how."""
    seen: dict[str, tuple[list[str], torch.Tensor, torch.Tensor]] = {}
    hooks = []
    for name in blocks:
        block = root.get_submodule(name)
        ran: list[str] = []
        for inner, part in block.named_modules():
            if type(part) is nn.Conv2d:
                hooks.append(part.register_forward_hook(_noting(ran, inner)))
        hooks.append(block.register_forward_hook(_keeping(seen, name, ran)))
    try:
        call(root, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    known = {name: layer.module for name, layer in find(root)[0].items()}
    found = {name: _merger(root, name, known, *what) for name, what in seen.items()}
    return {name: merger for name, merger in found.items() if merger is not None}


def _noting(ran: list[str], name: str) -> Any:
    return lambda part, args, output: ran.append(name)


def _keeping(seen: dict[str, Any], name: str, ran: list[str]) -> Any:
    def hook(part: nn.Module, args: Any, output: Any) -> None:
        # Called with more than one value, a block does more than one convolution can.
        if (
            len(args) == 1
            and isinstance(args[0], torch.Tensor)
            and isinstance(output, torch.Tensor)
        ):
            seen[name] = ran, args[0], output

    return hook


def _merger(
    root: nn.Module,
    block: str,
    known: Mapping[str, nn.Module],
    ran: list[str],
    given: torch.Tensor,
    made: torch.Tensor,
) -> Merger | None:
    """By the name of the last dense convolution: what comes after it in the block is no layer."""
    convs: list[Any] = [root.get_submodule(f"{block}.{name}") for name in ran]
    square = all(len({*conv.kernel_size}) == 1 and set(conv.dilation) == {1} for conv in convs)
    dense = [
        name
        for name, conv in zip(ran, convs, strict=True)
        if conv.groups == 1 and known.get(f"{block}.{name}") is conv
    ]
    if given.dim() != 4 or not dense or not square:
        return None
    last: Any = root.get_submodule(f"{block}.{dense[-1]}")
    ends = convs[0].in_channels, last.out_channels
    kernel = max(conv.kernel_size[0] for conv in convs)
    if ends != (given.shape[1], made.shape[1]) or kernel % 2 == 0:
        return None
    return Merger(dense[-1], ran[0], *ends, kernel, bool((made >= 0).all()))


def merged(root: nn.Module, names: Iterable[str], mergers: Mapping[str, Merger]) -> nn.Module:
    """A copy in which one convolution stands for each of these blocks, as wide as they are now."""
    twin = copy.deepcopy(root)
    for name in names:
        merger, block = mergers[name], twin.get_submodule(name)
        first: Any = block.get_submodule(merger.first)
        last: Any = block.get_submodule(merger.name)
        put(twin, name, replace(merger, inputs=first.in_channels, outputs=last.out_channels))
    return twin


def put(root: nn.Module, name: str, merger: Merger) -> None:
    path, _, leaf = name.rpartition(".")
    root.get_submodule(path)._modules[leaf] = Merged(merger).train(root.training)
