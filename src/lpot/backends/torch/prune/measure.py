"""What may be cut from a module: groups that hold up in a run, blocks of layers, importance."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lpot.backends.torch.data import arguments, tensors
from lpot.backends.torch.kinds import find
from lpot.backends.torch.prune.cut import is_exact, skipped
from lpot.backends.torch.prune.record import find_groups, one_sample
from lpot.backends.torch.run import CALL_ERRORS, call
from lpot.core.batch import Inputs
from lpot.core.compress.groups import Group
from lpot.core.progress import tracked

PROBES = 8  # random directions of the outputs, by which importance is estimated


def sound_groups(root: nn.Module, inputs: Inputs) -> list[Group]:
    """The groups whose removal was tried and gives exactly what ignoring them gives."""
    one = one_sample(inputs)
    return [group for group in tracked(find_groups(root, inputs)) if is_exact(root, group, one)]


def find_blocks(root: nn.Module, inputs: Inputs) -> dict[str, bool]:
    """Blocks of layers that give what they get, in shape: name → whether in a tuple.

    Each has two weighted layers at least and is called once: a residual block, a layer of an
    encoder. A branch is none, for its shortcut already hands on what came in.
    """
    ops = {id(layer.module) for layer in find(root)[0].values()}
    seen: dict[str, list[bool | None]] = {}
    readers = _Readers()
    hooks = []
    for name, part in root.named_modules():
        if name and sum(id(inner) in ops for inner in part.modules()) > 1:
            hooks.append(part.register_forward_hook(_note(seen, name, readers), with_kwargs=True))
    try:
        with readers:
            call(root, one_sample(inputs))
    finally:
        for hook in hooks:
            hook.remove()
    fits = {
        name: bool(found[0])
        for name, found in seen.items()
        if len(found) == 1 and found[0] is not None and name not in readers.branches
    }
    # What holds several blocks is no block.
    return {
        name: wraps
        for name, wraps in fits.items()
        if not any(other.startswith(f"{name}.") for other in fits)
        and _runs_without(root, name, wraps, inputs)
    }


def _runs_without(root: nn.Module, name: str, wraps: bool, inputs: Inputs) -> bool:
    """Code around a block may count on what is in it."""
    one = one_sample(inputs)
    try:
        found = list(tensors(call(skipped(root, [name], {name: wraps}), one)))
    except CALL_ERRORS:
        return False
    truth = list(tensors(call(root, one)))
    return [tensor.shape for tensor in found] == [tensor.shape for tensor in truth]


class _Readers(TorchDispatchMode):  # type: ignore[misc]
    """Which values are read by a sum before anything else reads them: those of branches.

    On its way there a value may be reshaped or scaled.
    """

    _SUMS = ("add", "add_")
    _PASSING = ("mul", "mul_", "view", "_unsafe_view", "clone", "transpose", "permute")

    def __init__(self) -> None:
        super().__init__()
        self.branches: set[str] = set()
        self._waiting: dict[int, set[str]] = {}
        self._kept: list[torch.Tensor] = []  # ids stay unique while their tensors live

    def wait(self, tensor: torch.Tensor, names: set[str]) -> None:
        self._kept.append(tensor)
        self._waiting.setdefault(id(tensor), set()).update(names)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        read = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
        op = func.overloadpacket.__name__
        for tensor in read:
            names = self._waiting.pop(id(tensor), set())
            if names and op in self._SUMS:
                self.branches |= names
            elif names and op in self._PASSING:
                self.wait(out, names)
        return out


def _note(seen: dict[str, list[bool | None]], name: str, readers: _Readers) -> Any:
    def hook(part: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        wraps = isinstance(output, tuple)
        made = output[0] if wraps and output else output
        given = args[0] if args else None
        same = (
            isinstance(given, torch.Tensor)
            and isinstance(made, torch.Tensor)
            and given.shape == made.shape
            and given.dtype == made.dtype
            and not (wraps and len(output) > 1)
        )
        seen.setdefault(name, []).append(wraps if same else None)
        if same:
            readers.wait(made, {name})

    return hook


def importance(
    root: nn.Module, groups: Sequence[Group], batches: Iterable[Inputs], seed: int = 0
) -> dict[str, np.ndarray]:
    """How much each unit matters to the outputs: the diagonal Fisher of a gate on it.

    Liu et al., "Group Fisher Pruning for Practical Network Compression" (2021), without labels:
    gradients of random directions of the outputs stand for those of the loss.
    """
    twin = copy.deepcopy(root).eval()
    for tensor in twin.parameters():
        tensor.requires_grad_(tensor.is_floating_point())
    known = {**dict(twin.named_parameters())}
    total = {group.name: np.zeros(group.units) for group in groups}
    draw = torch.Generator().manual_seed(seed)
    for inputs in batches:
        positional, named = arguments(twin, inputs)
        for _ in range(PROBES):
            twin.zero_grad(set_to_none=True)
            _direction(twin(*positional, **named), draw).backward()
            for group in groups:
                total[group.name] += _gates(group, known) ** 2
    return total


def _direction(output: Any, draw: torch.Generator) -> torch.Tensor:
    parts = [item for item in tensors(output) if item.is_floating_point() and item.requires_grad]
    return torch.stack(
        [(part * torch.randn(part.shape, generator=draw)).sum() for part in parts]
    ).sum()


def _gates(group: Group, known: Mapping[str, torch.Tensor]) -> np.ndarray:
    """The gradient of a factor on each unit, as its readers see it."""
    found = np.zeros(group.units)
    for slot in group.slots:
        tensor = known.get(slot.place.tensor)
        if not slot.reads or tensor is None or tensor.grad is None:
            continue
        product = (tensor.detach() * tensor.grad).movedim(slot.place.axis, 0)
        each = product.reshape(product.shape[0], -1).sum(1).numpy().astype(np.float64)
        channels = each.reshape(slot.width, -1).sum(1)
        whole = np.zeros(group.size)
        whole[slot.start : slot.start + slot.width] = channels
        found += whole.reshape(group.units, -1).sum(1)
    return found
