"""A copy of a module tree that shares its tensors, so that a trial costs objects and no memory."""

from __future__ import annotations

import copy
import functools
import types
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn

# Buffers up to this size are copied: batch norm's change in train mode, a causal mask never.
_SMALL_BUFFER = 1 << 16
_SCAN_DEPTH = 6
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type, types.FunctionType, torch.Tensor)
_OWN = (dict, list, set, OrderedDict)
_CONTAINERS = ("_modules", "_parameters", "_buffers")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class Cloner:
    """Clones one module tree again and again; what is particular about it is found once.

    A module may keep other modules of the tree outside `_modules` (a list, a bound method, an
    object of its own). Those attributes are found by a bounded scan and follow into the copy. So do
    hooks that know a module of the tree (`lambda m, x, y: self.features.append(y)`), and functions
    put in the place of a module's forward (`model.forward = lambda x: old(2 * x)`).
    """

    def __init__(self, root: nn.Module) -> None:
        self._root = root
        members = {id(module) for module in root.modules()}
        self._linked = {
            id(module): names
            for module in root.modules()
            if (
                names := [
                    name for name, value in _plain_attributes(module) if _reaches(value, members)
                ]
            )
        }
        self._hooked = [
            module
            for module in root.modules()
            if _has_function(module) or any(getattr(module, name) for name in _HOOKS)
        ]

    def __call__(self, substitutes: Mapping[int, nn.Module] | None = None) -> nn.Module:
        """A copy, in which the modules with these ids are replaced wherever they occur."""
        made: dict[int, nn.Module] = dict(substitutes or {})
        twin = self._copy(self._root, made)
        if self._linked:
            self._relink(made)
        if self._hooked:
            rebind(self._hooked, made)
        return twin

    def _copy(self, module: nn.Module, made: dict[int, nn.Module]) -> nn.Module:
        known = made.get(id(module))
        if known is not None:
            return known
        if isinstance(module, torch.jit.ScriptModule):
            return module  # no part of it is ever replaced, and it can't be copied so
        kind: Any = type(module)
        cls: Any = _flow_class(kind) if isinstance(module, fx.GraphModule) else kind
        # A GraphModule has a class of its own with its forward: `__new__` would make another.
        new = object.__new__ if isinstance(module, fx.GraphModule) else cls.__new__
        twin: nn.Module = new(cls)
        made[id(module)] = twin
        fields = module.__dict__.copy()
        fields["_parameters"] = fields["_parameters"].copy()
        fields["_buffers"] = {name: _own(value) for name, value in fields["_buffers"].items()}
        fields["_modules"] = {
            name: None if child is None else self._copy(child, made)
            for name, child in fields["_modules"].items()
        }
        for name, value in fields.items():
            # Hooks, caches, counters: what the copy puts there must not reach the original.
            if type(value) in _OWN and name not in _CONTAINERS:
                fields[name] = value.copy()
            elif type(value) is torch.Tensor and value.is_leaf:
                fields[name] = _own(value)  # a state that forward may change in place
        twin.__dict__ = fields
        return twin

    def _relink(self, made: dict[int, nn.Module]) -> None:
        memo: dict[int, Any] = dict(made)
        for tensor in (*self._root.parameters(), *self._root.buffers()):
            memo[id(tensor)] = tensor
        for module in self._root.modules():
            names = self._linked.get(id(module), ())
            twin = made.get(id(module))
            if twin is None or not issubclass(type(twin), type(module)):
                continue  # replaced, or inside of a replaced one
            fields = twin.__dict__
            for name in names:
                fields[name] = copy.deepcopy(fields[name], memo)


@functools.cache
def _flow_class(cls: type[fx.GraphModule]) -> type[fx.GraphModule]:
    """A GraphModule whose copies keep all attributes: torch's forget a `forward` put on them."""
    if "__deepcopy__" in cls.__dict__:
        return cls
    made: type[fx.GraphModule] = type(cls.__name__, (cls,), {"__deepcopy__": _deep_copy})
    return made


def _deep_copy(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    twin: nn.Module = object.__new__(type(module))
    memo[id(module)] = twin
    twin.__dict__.update(copy.deepcopy(module.__dict__, memo))
    return twin


def rebind(modules: Iterable[nn.Module], made: Mapping[int, nn.Module]) -> None:
    """Hooks of the copies (`made`, by the original's id), and functions in the place of their
    forward, know the copies, no more the originals."""
    for module in modules:
        twin = made.get(id(module))
        if twin is None or not issubclass(type(twin), type(module)):
            continue  # replaced, or inside of a replaced one
        for name in _HOOKS:
            hooks = getattr(twin, name)
            for key, hook in hooks.items():
                hooks[key] = _rebound(hook, made)
        if _has_function(twin):
            twin.__dict__["forward"] = _rebound(twin.__dict__["forward"], made)


def _known(hook: Any) -> list[Any]:
    """What a function took along from where it was written."""
    cells = hook.__closure__ if isinstance(hook, types.FunctionType) else None
    return [cell.cell_contents for cell in cells or ()]


def _has_function(module: nn.Module) -> bool:
    return isinstance(module.__dict__.get("forward"), types.FunctionType)


def _rebound(hook: Any, made: Mapping[int, nn.Module]) -> Any:
    """The same hook for the copy: it knows the copy's modules instead of the original's."""
    known = _known(hook)
    twins = [_twin(value, made) for value in known]
    if all(one is other for one, other in zip(known, twins, strict=True)):
        return hook
    cells = tuple(map(types.CellType, twins))
    twin = types.FunctionType(
        hook.__code__, hook.__globals__, hook.__name__, hook.__defaults__, cells
    )
    twin.__kwdefaults__ = hook.__kwdefaults__
    return twin


def _twin(value: Any, made: Mapping[int, nn.Module]) -> Any:
    """The copy of a module, or a method of the copy; anything else is what it was."""
    if isinstance(value, types.MethodType) and id(value.__self__) in made:
        return types.MethodType(value.__func__, made[id(value.__self__)])
    return made.get(id(value), value)


def _own(buffer: torch.Tensor | None) -> torch.Tensor | None:
    if buffer is None or buffer.numel() > _SMALL_BUFFER:
        return buffer
    return buffer.clone()


def _plain_attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in module.__dict__.items():
        if name not in _CONTAINERS and not isinstance(value, _PLAIN):
            yield name, value


def _reaches(value: Any, members: set[int], depth: int = 0, seen: set[int] | None = None) -> bool:
    """Can one get from `value` to a module of the tree?"""
    seen = set() if seen is None else seen
    if depth > _SCAN_DEPTH or isinstance(value, _PLAIN) or id(value) in seen:
        return False
    seen.add(id(value))
    if id(value) in members:
        return True
    return any(_reaches(inner, members, depth + 1, seen) for inner in _inside(value))


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif isinstance(value, types.MethodType):
        yield value.__self__
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    else:
        yield from getattr(value, "__dict__", {}).values()
