"""Channels and blocks of layers, removed from a module: what is left is smaller in any runtime."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.data import tensors
from lpot.backends.torch.prune.merge import Merged, Merger, merger_of, put
from lpot.backends.torch.run import CALL_ERRORS, call
from lpot.core.batch import Inputs
from lpot.core.compress.groups import Group, Kept, entries_left
from lpot.core.errors import UnsupportedModel

CLOSE = 1e-4  # relative: the two models add up in another order


@dataclass(frozen=True)
class Shape:
    """What pruning made of an architecture: enough to shape a fresh module alike."""

    tensors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    merged: Mapping[str, Merger] = field(default_factory=dict)

    def is_gone(self, op: str) -> bool:
        """Was the op removed, with the block of layers around it?"""
        if op.startswith(tuple(f"{name}." for name in self.removed)):
            return True
        return any(
            op.startswith(f"{name}.") and op != f"{name}.{merger.name}"
            for name, merger in self.merged.items()
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "tensors": {name: list(shape) for name, shape in self.tensors.items()},
            "attributes": {name: dict(found) for name, found in self.attributes.items()},
            "removed": list(self.removed),
            "merged": {name: merger.to_json() for name, merger in self.merged.items()},
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Shape:
        """Raises KeyError, TypeError or ValueError for what is none."""
        return cls(
            {str(name): tuple(map(int, shape)) for name, shape in raw["tensors"].items()},
            {
                str(name): {str(key): int(value) for key, value in found.items()}
                for name, found in raw["attributes"].items()
            },
            tuple(map(str, raw["removed"])),
            # Files of before know of none.
            {str(k): Merger.from_json(found) for k, found in raw.get("merged", {}).items()},
        )


class Skip(nn.Module):  # type: ignore[misc]
    """Stands where a block of layers was: hands on what came in, as the block did."""

    def __init__(self, wraps: bool = False) -> None:
        super().__init__()
        self.wraps = wraps  # in a tuple

    def forward(self, hidden: Any, *args: Any, **kwargs: Any) -> Any:
        return (hidden,) if self.wraps else hidden


def removed(root: nn.Module, groups: Iterable[Group], kept: Kept) -> nn.Module:
    """A copy without the units that are not kept."""
    twin = copy.deepcopy(root)
    chosen = [group for group in groups if group.name in kept]
    masks = left_of(twin, chosen, kept)
    for (name, axis), mask in masks.items():
        _set(twin, name, _tensors(twin)[name].detach()[_along(axis, mask)])
    for path in sorted({name.rpartition(".")[0] for name, _ in masks}):
        _resize(twin.get_submodule(path))
    for group in chosen:
        _tell_heads(twin, group, len(kept[group.name]))
    return twin


def left_of(
    root: nn.Module, groups: Iterable[Group], kept: Kept
) -> dict[tuple[str, int], torch.Tensor]:
    """Which entries of tensors stay, by name and axis."""
    shapes = {name: tuple(tensor.shape) for name, tensor in _tensors(root).items()}
    found = entries_left(groups, kept, shapes)
    return {place: torch.from_numpy(mask) for place, mask in found.items()}


def skipped(root: nn.Module, names: Iterable[str], wraps: Mapping[str, bool]) -> nn.Module:
    """A copy in which some blocks of layers hand on what comes in."""
    twin = copy.deepcopy(root)
    for name in names:
        _put(twin, name, Skip(wraps.get(name, False)))
    return twin


def silenced(root: nn.Module, group: Group, gone: Iterable[int]) -> nn.Module:
    """A copy of full size that ignores some units: what `removed` must be equal to."""
    twin = copy.deepcopy(root)
    known = _tensors(twin)
    units = list(gone)
    with torch.no_grad():
        for slot in group.slots:
            if slot.reads:
                index = torch.tensor(group.entries(slot, units), dtype=torch.long)
                known[slot.place.tensor].index_fill_(slot.place.axis, index, 0.0)
    return twin


def is_exact(root: nn.Module, group: Group, inputs: Inputs) -> bool:
    """Does the removal of units give the same as ignoring them? Tried with the last one."""
    last = group.units - 1
    try:
        small = removed(root, [group], {group.name: tuple(range(last))})
        found = list(tensors(call(small, inputs)))
    except (*CALL_ERRORS, AssertionError):  # code that counts on the old size
        return False
    truth = list(tensors(call(silenced(root, group, [last]), inputs)))
    return len(found) == len(truth) and all(map(_close, found, truth))


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or not one.is_floating_point():
        return bool(one.shape == other.shape and torch.equal(one, other))
    scale = float(other.abs().max()) or 1.0
    return float((one - other).abs().max()) <= CLOSE * scale


def shape_of(pruned: nn.Module, original: nn.Module) -> Shape:
    """How a pruned module differs from the one that it was made of."""
    before, after = _tensors(original), _tensors(pruned)
    found = {name: merger_of(part) for name, part in pruned.named_modules()}
    merged = {name: merger for name, merger in found.items() if merger is not None}
    inside = tuple(f"{name}." for name in merged)
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in after.items()
        if name in before
        and before[name].shape != tensor.shape
        and not (inside and name.startswith(inside))
    }
    attributes: dict[str, dict[str, int]] = {}
    parts = dict(pruned.named_modules())
    skips = {name: part for name, part in parts.items() if isinstance(part, Skip)}
    for name, part in original.named_modules():
        twin = parts.get(name)
        if twin is None or type(twin) is not type(part):
            continue
        changed = {
            key: value
            for key, value in vars(twin).items()
            if type(value) is int and value != vars(part).get(key, value)
        }
        if changed:
            attributes[name] = changed
    wrapped = {name: {"wraps": 1} for name, skip in skips.items() if skip.wraps}
    return Shape(shapes, {**attributes, **wrapped}, tuple(skips), merged)


def reshape(root: nn.Module, shape: Shape) -> None:
    """Give a module of the original architecture the shape of a pruned one, in place.

    Its values are left open: they are read from a file afterwards.
    """
    known = _tensors(root)
    for name, size in shape.tensors.items():
        old = tuple(known[name].shape) if name in known else size
        if len(old) != len(size) or any(new > was for new, was in zip(size, old, strict=True)):
            raise UnsupportedModel(
                f"{name!r} is {list(size)} in the pruned model, but {list(old)} in this "
                "architecture: it was saved from another one"
            )
        if old != size:
            _set(root, name, known[name].new_zeros(size))
    parts = dict(root.named_modules())
    for name in shape.removed:
        if not isinstance(parts.get(name), Skip):
            _put(root, name, Skip(bool(shape.attributes.get(name, {}).get("wraps"))))
    for name, merger in shape.merged.items():
        if name not in parts:
            raise UnsupportedModel(
                f"there is no {name!r}, which the pruned model has, in this architecture: it was "
                "saved from another one"
            )
        if not isinstance(parts[name], Merged):
            put(root, name, merger)
    for name, found in shape.attributes.items():
        part = parts.get(name)
        for key, value in found.items() if part is not None and name not in shape.removed else ():
            setattr(part, key, value)


def _tensors(root: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(root.named_parameters()), **dict(root.named_buffers())}


def _along(axis: int, mask: torch.Tensor) -> tuple[Any, ...]:
    return (*(slice(None) for _ in range(axis)), mask)


def _set(root: nn.Module, name: str, value: torch.Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    part = root.get_submodule(path)
    if leaf in part._parameters:
        part._parameters[leaf] = nn.Parameter(value.clone())
    else:
        part._buffers[leaf] = value.clone()


def _put(root: nn.Module, name: str, part: nn.Module) -> None:
    path, _, leaf = name.rpartition(".")
    root.get_submodule(path)._modules[leaf] = part.train(root.training)


def _resize(part: Any) -> None:
    """The sizes that torch's own modules keep beside their weights."""
    if isinstance(part, nn.Linear):
        part.out_features, part.in_features = part.weight.shape
    elif isinstance(part, nn.modules.conv._ConvTransposeNd):
        part.in_channels, part.out_channels = part.weight.shape[:2]
    elif isinstance(part, nn.modules.conv._ConvNd):
        outputs, each = part.weight.shape[:2]
        if part.groups > 1:
            part.groups = outputs // each
        part.out_channels, part.in_channels = outputs, each * part.groups
    elif isinstance(part, nn.modules.batchnorm._BatchNorm):
        part.num_features = part.weight.shape[0] if part.affine else part.running_mean.shape[0]


def _tell_heads(root: nn.Module, group: Group, left: int) -> None:
    """An attention module may keep the number of its heads, and their total width."""
    if group.block == 1:
        return
    for path in {slot.place.tensor.rpartition(".")[0].rpartition(".")[0] for slot in group.slots}:
        part = root.get_submodule(path)
        for key, value in list(vars(part).items()):
            if type(value) is not int or "head" not in key:
                continue
            # As many heads as each is wide: only the name can tell which of the two it is.
            if value == group.block and any(word in key for word in ("dim", "size", "width")):
                continue
            if value == group.units:
                setattr(part, key, left)
            elif value == group.size:
                setattr(part, key, left * group.block)
